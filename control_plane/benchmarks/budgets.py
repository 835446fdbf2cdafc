"""What each benchmark must meet. A budget is a ratio where it can be, so that it holds on any machine."""

# Whole processes, as multiples of `python3 -c pass`.
HEARTBEAT_RATIO = 3.0
HELP_RATIO = 4.0
STATUS_RATIO = 5.0

# Events that the monitor verifies, records and settles, as a share of what a bare subscriber receives.
MONITOR_SHARE = 0.4

# Seconds from the commit of a prompt to its submission.
DELIVERY_P50_S = 0.5
DELIVERY_P95_S = 0.8

# Processes that have nothing to do: resident MB, percent of a core.
RUNNER_MB = 30
RUNNER_CORE_PERCENT = 0.1
MONITOR_MB = 150
MONITOR_CORE_PERCENT = 0.5

# Seconds for one look over 200 agents.
LOOK_S = 1.0

# A round of review: seconds beside the agents' own time, git processes with three reviewers and for each one more.
ROUND_S = 1.5
ROUND_GIT_PROCESSES = 25
REVIEWER_GIT_PROCESSES = 6
