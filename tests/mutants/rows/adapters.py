"""Foreign code is called through a border: what it does wrong is a typed error and a finding."""

from tests.mutants.mutant import Mutant

_BORDER = ("tests/agents/test_border.py",)
_MUX = ("tests/wrappers/mux/test_border.py",)
_FOUND = ("tests/control_plane/monitor/test_adapter_findings.py",)
_CONTRACT = ("tests/agents/test_contract.py",)

ROWS = (
    Mutant(
        "adapter-raises",
        "whatever an adapter raises is AdapterFailed",
        "agents/border.py",
        "except (Exception, SystemExit) as error:",
        "except ValueError as error:",
        _BORDER,
    ),
    Mutant(
        "adapter-returns",
        "a screen's state is a ScreenState",
        "agents/border.py",
        '    if not isinstance(value, ScreenState):\n        raise _unfit(value, "a ScreenState")\n',
        "",
        _BORDER,
    ),
    Mutant(
        "adapter-demands",
        "the loader demands all members of the protocol",
        "agents/border.py",
        "return [*inspect.get_annotations(AgentCli), *_functions(AgentCli)]",
        "return _functions(AgentCli)",
        _BORDER,
    ),
    Mutant(
        "adapter-loads",
        "a package that cannot be imported is BrokenAgent",
        "agents/catalog.py",
        "except (Exception, SystemExit) as error:",
        "except ImportError as error:",
        _BORDER,
    ),
    Mutant(
        "adapter-unreadable",
        "a screen that its adapter cannot read is a finding",
        "control_plane/monitor/checks.py",
        "if agent.screen == UNREADABLE}",
        "if False}",
        _FOUND,
    ),
    Mutant(
        "mux-raises",
        "whatever a multiplexer raises means that it could not look",
        "wrappers/mux/border.py",
        "except (Exception, SystemExit) as error:",
        "except ValueError as error:",
        _MUX,
    ),
    Mutant(
        "mux-full-disk",
        "a machine that refuses a new pane is said in its own words",
        "wrappers/mux/border.py",
        "passing=(MamError, OSError)",
        "passing=(MamError,)",
        _MUX,
    ),
    Mutant(
        "mux-found",
        "a multiplexer whose own code fails is a finding",
        "control_plane/monitor/job_checks.py",
        "            failed[place] = str(error)",
        "            pass",
        _FOUND,
    ),
    Mutant(
        "adapter-resumes",
        "the contract refuses an adapter that resumes what was not kept",
        "agents/contract.py",
        "        _insist(resumed is None,",
        "        _insist(True,",
        _CONTRACT,
    ),
    Mutant(
        "sample-kept",
        "a sample is never replaced",
        "agents/samples.py",
        'path.open("x"',
        'path.open("w"',
        _CONTRACT,
    ),
)
