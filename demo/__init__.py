"""`make demo SYSTEM=…`: a system through a real worker and a real beat, judged at the end.

__main__    chooses systems; exit status 0 if every verdict holds
stage       where: servers, sandbox, worker, beat; all of it gone afterwards
watch       until nothing is left to do
verdict     what a demo concludes
screen      tells it
size        full, or small
instasites  a system: a module or package of its name with these two functions

    def setting(seed: int | None) -> Setting: ...
        # What the demo runs with: environment, the sandbox's plan. `seed` None: the demo's own.

    def play(on: Stage, screen: Screen) -> Sequence[Verdict]: ...
        # The whole run, on a migrated database. Its process has `on.environ` before it imports `tasks`, which
        # reads it: so import `tasks` within `play`. Raises StageError if the run broke off.

A system is added by its name in `demo.__main__.SYSTEMS`.
"""
