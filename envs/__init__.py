"""What decisions are made on: arms, Gymnasium environments, tasks for attention heads."""
