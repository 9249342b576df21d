/** The events about the node's conditions. */
import type { NodeObject } from '../../model/core-types.ts';

const TRANSITIONS: ReadonlyMap<string, readonly [whenTrue: string, otherwise: string]> = new Map(
  Object.entries({
    MemoryPressure: ['NodeHasInsufficientMemory', 'NodeHasSufficientMemory'],
    DiskPressure: ['NodeHasDiskPressure', 'NodeHasNoDiskPressure'],
    PIDPressure: ['NodeHasInsufficientPID', 'NodeHasSufficientPID'],
    Ready: ['NodeReady', 'NodeNotReady'],
  }),
);

/** Returns the reasons of the events about conditions that changed. Pure. */
export function transitions(before: NodeObject, after: NodeObject): readonly string[] {
  return (after.status?.conditions ?? []).flatMap(({ type, status }) => {
    const was = before.status?.conditions?.find((condition) => condition.type === type)?.status;
    const reasons = TRANSITIONS.get(type);
    if (reasons === undefined || was === status) return [];
    return [status === 'True' ? reasons[0] : reasons[1]];
  });
}
