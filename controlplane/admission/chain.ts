/**
 * The admission chain: every plugin's `admit` in order, then every plugin's `validate` on the final object.
 *
 * Which plugins take part in an operation is worked out once. A plugin that throws something else than a `StatusError` has
 * a bug: it surfaces as an internal error at the edge.
 */
import type { AdmissionAttributes, AdmissionChain, AdmissionPlugin, Operation } from './admission.ts';

const OPERATIONS: readonly Operation[] = ['CREATE', 'UPDATE', 'DELETE', 'CONNECT'];

export interface ChainMetrics {
  /** `plugin`, `admit` or `validate`, `operation`, whether it was refused, seconds. */
  observe(plugin: string, type: 'admit' | 'validate', operation: Operation, rejected: boolean, seconds: number): void;
  /** The same of all plugins together. */
  observeStep(type: 'admit' | 'validate', operation: Operation, rejected: boolean, seconds: number): void;
}

export function admissionChain(
  plugins: readonly AdmissionPlugin[],
  metrics?: ChainMetrics,
  monotonic: () => number = () => 0,
): AdmissionChain {
  const table = new Map(
    OPERATIONS.map((operation) => {
      const mine = plugins.filter((plugin) => plugin.handles(operation));
      return [
        operation,
        {
          admit: mine.filter((plugin) => plugin.admit !== undefined),
          validate: mine.filter((plugin) => plugin.validate !== undefined),
        },
      ];
    }),
  );
  const run = async (
    type: 'admit' | 'validate',
    attributes: AdmissionAttributes,
    signal: AbortSignal,
  ): Promise<void> => {
    for (const plugin of table.get(attributes.operation)?.[type] ?? []) {
      const startMs = metrics === undefined ? 0 : monotonic();
      let rejected = true;
      try {
        const pending = plugin[type]?.(attributes, signal);
        // Most plugins decide at once; a tick for each would be felt on every write.
        if (pending !== undefined) await pending;
        rejected = false;
      } finally {
        metrics?.observe(plugin.name, type, attributes.operation, rejected, (monotonic() - startMs) / 1000);
      }
    }
  };
  const step = async (
    type: 'admit' | 'validate',
    attributes: AdmissionAttributes,
    signal: AbortSignal,
  ): Promise<void> => {
    const startMs = metrics === undefined ? 0 : monotonic();
    let rejected = true;
    try {
      await run(type, attributes, signal);
      rejected = false;
    } finally {
      metrics?.observeStep(type, attributes.operation, rejected, (monotonic() - startMs) / 1000);
    }
  };
  return {
    admit: (attributes, signal) => step('admit', attributes, signal),
    validate: (attributes, signal) => step('validate', attributes, signal),
  };
}
