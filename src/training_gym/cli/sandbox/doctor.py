"""`training-gym sandbox doctor`: which tiers work here, what each keeps, why others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from training_gym.spec.sandboxes import TierReport


def doctor(as_json: AsJson = False) -> None:
    """Say which sandboxes work here and what they are worth, by trying.

    Ends with the exit code of a sandbox error if none works.
    """
    import typer

    from training_gym.cli import output
    from training_gym.spec.bridge import run_sync
    from training_gym.spec.sandboxes import TIERS, SandboxError

    reports = run_sync(_probe())
    if as_json:
        output.emit(
            "sandbox.doctor/1",
            works=any(report.works for report in reports),
            tiers=[report.model_dump(mode="json") for report in reports],
        )
    else:
        output.table(
            ["", "provider", "tier", "keeps"],
            [
                (
                    "ok" if report.works else "--",
                    report.provider,
                    report.tier,
                    ", ".join(report.guarantees) or report.reason,
                )
                for report in reports
            ],
        )
        for report in reports:
            output.say(f"{report.provider}, tier {report.tier}: {TIERS[report.tier]}")
            for limit in report.limits:
                output.say(f"  but {limit}")
            if not report.works:
                output.say(f"  does not work: {report.reason}\n  {report.fix}")
    if not any(report.works for report in reports):
        raise typer.Exit(SandboxError.exit_code)


async def _probe() -> list[TierReport]:
    from training_gym.sandboxes.registry import find, names
    from training_gym.spec.sandboxes import SandboxError, TierReport

    reports: list[TierReport] = []
    for name in names():
        try:
            provider = find(name)
            reports += await provider.probe()
            await provider.close()
        except SandboxError as error:
            told = {"works": False, "reason": error.message, "fix": error.fix}
            reports.append(TierReport.read({"tier": "remote", "provider": name, **told}))
    return reports
