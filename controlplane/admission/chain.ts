/**
 * The admission chain: calls every plugin's `admit` in order, then every plugin's `validate` on the final object.
 *
 * The plugins of an operation are selected once. An error of a plugin that is not a `StatusError` is a bug, and the client gets
 * an internal error.
 */
import type { AdmissionAttributes, AdmissionChain, AdmissionPlugin, Operation } from './admission.ts';

const OPERATIONS: readonly Operation[] = ['CREATE', 'UPDATE', 'DELETE', 'CONNECT'];

export interface ChainMetrics {
  /** Receives the plugin, `admit` or `validate`, the operation, whether it was refused, and the duration in seconds. */
  observe(plugin: string, type: 'admit' | 'validate', operation: Operation, rejected: boolean, seconds: number): void;
  /** The same for the whole chain. */
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
          beforeWrite: mine.filter((plugin) => plugin.beforeWrite !== undefined),
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
        // Most plugins decide synchronously; an extra microtask for each of them would slow down every write.
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
    beforeWrite(attributes) {
      for (const plugin of table.get(attributes.operation)?.beforeWrite ?? []) plugin.beforeWrite?.(attributes);
    },
  };
}
