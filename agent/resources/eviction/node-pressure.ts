/** The pressure conditions of the node. */
import type { Condition } from './thresholds.ts';

type PressureKind = 'memory' | 'disk' | 'pid';

const CONDITIONS: Readonly<Record<PressureKind, Condition>> = {
  memory: 'MemoryPressure',
  disk: 'DiskPressure',
  pid: 'PIDPressure',
};

/** Owns the conditions that hold now. Without an eviction manager none does. */
export class NodePressure {
  #conditions: ReadonlySet<Condition> = new Set();

  has(kind: PressureKind): boolean {
    return this.#conditions.has(CONDITIONS[kind]);
  }

  /** Replaces the conditions, and returns whether they changed. */
  set(conditions: ReadonlySet<Condition>): boolean {
    const hasChanged = this.#conditions.symmetricDifference(conditions).size > 0;
    this.#conditions = conditions;
    return hasChanged;
  }
}
