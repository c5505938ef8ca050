"""A node loses its power in mid-drain (hole 2): what was durable moves, what was not is lost and told, and no memory of before is restored over what
its pod did afterwards."""

import faults
import kit

# Until the store was asked to commit there is nothing but the node's memory.
BEFORE = ("agent.intent_written", "agent.frozen", "runtime.frozen", "agent.dumped", "ingest.segment_sent", "agent.before_commit")
STORED = ("agent.after_commit", "agent.before_ready", "controller.before_evict", "controller.after_evict", "runtime.before_kill", "controller.claimed")
RESTORING = ("agent.fetched", "agent.before_restore_answer", "runtime.before_restore")
MAY_HAVE_RUN = "runtime.before_restore"  # what may have run is not restored a second time


def test_a_node_that_loses_power_when_the_state_is_stored_loses_no_count(counter):
    for point in kit.of_this_commit(STORED, 1):
        faults.drain_with_reboot(counter, point)
        assert len(counter.report()) == 1, f"{point}: the counter started cold: {counter.report()}"


def test_a_node_that_loses_power_while_it_restores_loses_no_count_or_says_so(counter):
    for point in kit.of_this_commit(RESTORING, 1):
        faults.drain_with_reboot(counter, point)
        cold = len(counter.report()) > 1
        assert not cold or point == MAY_HAVE_RUN, f"{point}: the counter started cold: {counter.report()}"
        if cold:  # an event says so, or the judge would not have let it pass
            counter.reset()
            counter.wait_progress()


def test_a_node_that_loses_power_before_the_state_is_stored_restores_nothing_of_before(counter):
    for point in kit.of_this_commit(BEFORE, 1):
        faults.drain_with_reboot(counter, point)
        assert len(counter.report()) > 1, f"{point}: what ended with its node has gone on: {counter.report()}"
        counter.reset()
        counter.wait_progress()
