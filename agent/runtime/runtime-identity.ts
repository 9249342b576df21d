/** How the container runtime boundary (`runtime.ts`) identifies containers, sandboxes and the pods that they belong to. */
declare const brand: unique symbol;
export type ContainerId = string & { readonly [brand]: 'container' };
export type SandboxId = string & { readonly [brand]: 'sandbox' };

export interface PodIdentity {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly attempt: number;
}
