/** The options that devices add to a container. */

/** The container options that the runtime needs for the container's devices. */
export interface DeviceRunOptions {
  readonly env: ReadonlyMap<string, string>;
  readonly mounts: readonly { readonly containerPath: string; readonly hostPath: string; readonly readonly: boolean }[];
  readonly devices: readonly {
    readonly containerPath: string;
    readonly hostPath: string;
    readonly permissions: string;
  }[];
  readonly annotations: Readonly<Record<string, string>>;
  readonly cdiDevices: readonly string[];
}
