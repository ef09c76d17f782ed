"""`stau-rl speed`: the engines beside their peers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Speed:
    """Check the engines against an exact regret, then time them beside JAX scans (extra `peers`) in one run.

    Example: stau-rl speed --repeats 7 --memory
    """

    arms: int = 10
    """Number of arms."""
    repeats: int = 5
    """Timed runs of each, after one that warms up."""
    memory: bool = False
    """Also measure peak memory of the headline experiment with 100 000 instances at two horizons."""

    after_stop = ""

    def run(self) -> None:
        """Print the table of speeds, and of memory if asked for."""
        from rich.console import Console
        from rich.table import Table

        from stau_rl.console import wide_console
        from stau_rl.speed import POLICY, measure, peak_memory

        if self.arms < 1 or self.repeats < 1:
            raise ValueError(f"--arms and --repeats must be at least 1, got {self.arms} and {self.repeats}")
        with Console(stderr=True).status("compiling") as status:
            rows = measure(self.arms, self.repeats, status.update)
        table = Table(title=f"{POLICY}, {self.arms} Bernoulli arms, float32, all cores", title_justify="left")
        table.add_column("loop")
        for name in ("M arm-steps/s", "p20", "p80", "numba is", "instances", "first run, s", "z of regret"):
            table.add_column(name, justify="right")
        for row in rows.to_dict("records"):
            table.add_row(
                row["name"],
                *(f"{row[name]:.0f}" for name in ("m_arm_steps", "p20", "p80")),
                f"{row['numba_ratio']:.1f} x",
                str(row["instances"]),
                f"{row['compile_seconds']:.1f}",
                f"{row['standard_errors']:+.2f}",
            )
        console = wide_console()
        console.print(table)
        console.print("z of regret: distance of the mean regret from its exact value, in standard errors.")
        if not any(name.startswith("JAX") for name in rows["name"]):
            console.print("JAX is not installed (extra `peers`), so its scans are missing.")
        if self.memory:
            for horizon in (1_000, 10_000):
                peak = peak_memory(horizon)
                console.print(f"100 000 instances, 9 policies, {horizon} steps: peak memory {peak:.0f} MiB")
