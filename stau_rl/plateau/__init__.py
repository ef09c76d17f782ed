"""How long policy gradient stays at a suboptimal arm, under which head."""
