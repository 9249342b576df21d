/**
 * Implements the admission chain, which calls every plugin's `admit` in order, and then every plugin's `validate` on the final
 * object.
 *
 * The plugins of an operation are selected once. An error of a plugin that is not a `StatusError` is a bug, and the client gets
 * an internal error.
 */
import type { AdmissionAttributes, AdmissionChain, AdmissionPlugin, Operation } from './admission.ts';

const OPERATIONS: readonly Operation[] = ['CREATE', 'UPDATE', 'DELETE', 'CONNECT'];

/** Observers of the chain's durations, in seconds. */
export interface ChainMetrics {
  /** Returns the observer of the calls of one plugin. */
  plugin(name: string, type: 'admit' | 'validate', operation: Operation): Observe;
  /** Returns the observer of a step of the whole chain. */
  step(type: 'admit' | 'validate', operation: Operation): Observe;
}

/** Receives whether a call was rejected, and its duration in seconds. */
export type Observe = (rejected: boolean, seconds: number) => void;

/** Builds the chain of the plugins in their given order. `monotonic` returns milliseconds and is read only for metrics. */
export function admissionChain(
  plugins: readonly AdmissionPlugin[],
  metrics?: ChainMetrics,
  monotonic: () => number = () => 0,
): AdmissionChain {
  const table = new Map(
    OPERATIONS.map((operation) => {
      const handling = plugins.filter((plugin) => plugin.handles(operation));
      const observed = (type: 'admit' | 'validate') => ({
        plugins: handling
          .filter((plugin) => plugin[type] !== undefined)
          .map((plugin) => ({ plugin, observe: metrics?.plugin(plugin.name, type, operation) })),
        observe: metrics?.step(type, operation),
      });
      return [
        operation,
        {
          admit: observed('admit'),
          validate: observed('validate'),
          beforeWrite: handling.filter((plugin) => plugin.beforeWrite !== undefined),
        },
      ];
    }),
  );
  const step = async (
    type: 'admit' | 'validate',
    attributes: AdmissionAttributes,
    signal: AbortSignal,
  ): Promise<void> => {
    const chosen = table.get(attributes.operation)?.[type];
    const beganMs = monotonic();
    // A plugin begins when the one before it ends, so that the clock is read once for each.
    let startMs = beganMs;
    let rejected = true;
    try {
      for (const { plugin, observe } of chosen?.plugins ?? []) {
        let refuses = true;
        try {
          const pending = plugin[type]?.(attributes, signal);
          // Most plugins decide synchronously; an extra microtask for each of them would slow down every write.
          if (pending !== undefined) await pending;
          refuses = false;
        } finally {
          const endMs = monotonic();
          observe?.(refuses, (endMs - startMs) / 1000);
          startMs = endMs;
        }
      }
      rejected = false;
    } finally {
      chosen?.observe?.(rejected, (startMs - beganMs) / 1000);
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
