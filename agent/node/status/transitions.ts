/** Computes the events about the node: conditions that changed, and a host that has been rebooted. */
import type { NodeObject } from '../../base/model/node.ts';

/** An event about the node, with the reason and the message of the kubelet. */
export interface Transition {
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
}

const TRANSITIONS: ReadonlyMap<string, readonly [whenTrue: string, otherwise: string]> = new Map(
  Object.entries({
    MemoryPressure: ['NodeHasInsufficientMemory', 'NodeHasSufficientMemory'],
    DiskPressure: ['NodeHasDiskPressure', 'NodeHasNoDiskPressure'],
    PIDPressure: ['NodeHasInsufficientPID', 'NodeHasSufficientPID'],
    Ready: ['NodeReady', 'NodeNotReady'],
  }),
);

/** Returns the event for a condition that changed, such as `NodeReady` or `NodeHasDiskPressure`. */
export function statusIsNow(node: string, reason: string): Transition {
  return { type: 'Normal', reason, message: `Node ${node} status is now: ${reason}` };
}

/** Returns the events about what changed between two states of the node. Pure. */
export function transitions(before: NodeObject, after: NodeObject): readonly Transition[] {
  const { name } = after.metadata;
  const changed = (after.status?.conditions ?? []).flatMap(({ type, status }) => {
    const previous = before.status?.conditions?.find((condition) => condition.type === type)?.status;
    const reasons = TRANSITIONS.get(type);
    if (reasons === undefined || previous === status) return [];
    return [statusIsNow(name, status === 'True' ? reasons[0] : reasons[1])];
  });
  const [bootBefore, boot] = [before, after].map(({ status }) => status?.nodeInfo?.bootID ?? '');
  if (bootBefore === '' || bootBefore === boot) return changed;
  const message = `Node ${name} has been rebooted, boot id: ${boot}`;
  return [{ type: 'Warning', reason: 'Rebooted', message }, ...changed];
}
