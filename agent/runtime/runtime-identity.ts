/**
 * Defines how the container runtime boundary (`runtime.ts`) identifies containers, sandboxes and the pods that they belong to.
 */
declare const brand: unique symbol;
/** The id that the runtime gave to a container, without a prefix. */
export type ContainerId = string & { readonly [brand]: 'container' };
/** The id that the runtime gave to a sandbox. */
export type SandboxId = string & { readonly [brand]: 'sandbox' };

/** The pod of a sandbox. `attempt` counts its sandboxes from 0. */
export interface PodIdentity {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly attempt: number;
}
