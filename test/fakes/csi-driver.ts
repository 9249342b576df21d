/**
 * Implements a CSI driver: a real gRPC server on a unix socket, optionally with a registration socket. Its volumes are
 * directories below its own directory. It records every call, and fails or hangs if a test requests it.
 */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CSI_MESSAGES, CSI_METHODS, NODE_CAPABILITIES, type NodeCapability } from '../../agent/volumes/csi/schema.ts';
import { REGISTRATION_MESSAGES, REGISTRATION_METHODS } from '../../agent/volumes/plugins/schema.ts';
import type { Mounter } from '../../agent/volumes/mounter.ts';
import { PluginError, serveGrpc } from './grpc-plugin.ts';

export interface CsiCall {
  readonly method: string;
  readonly request: Readonly<Record<string, unknown>>;
}

export interface FakeCsiDriverOptions {
  readonly directory: string;
  readonly name?: string;
  readonly nodeId?: string;
  readonly maxVolumes?: number;
  readonly topology?: Readonly<Record<string, string>>;
  readonly capabilities?: readonly NodeCapability[];
  /** Bind-mounts the volume's directory at the target. Without it, the target is a separate directory. */
  readonly mounter?: Mounter;
  /** The directory `<root>/plugins_registry`, in which the driver registers like any plugin. */
  readonly registry?: string;
}

export interface FakeCsiDriver {
  readonly name: string;
  readonly endpoint: string;
  readonly calls: CsiCall[];
  /** The results of the registration that the agent reported. */
  readonly registrations: { readonly pluginRegistered: boolean; readonly error: string }[];
  /** Functions by method that run before the response. What a function throws becomes the error of the call. */
  readonly behave: Map<string, () => Promise<void> | void>;
  stop(): Promise<void>;
}

interface Publish {
  readonly volumeId: string;
  readonly targetPath: string;
  readonly readonly: boolean;
  readonly volumeCapability: { readonly block: object | null } | null;
}

/** Starts the driver on `csi.sock` of the directory, and on a registration socket if `registry` names its folder. */
export async function startCsiDriver(options: FakeCsiDriverOptions): Promise<FakeCsiDriver> {
  const { directory, name = 'csi.example.com', capabilities = [], mounter, registry } = options;
  const calls: CsiCall[] = [];
  const registrations: { pluginRegistered: boolean; error: string }[] = [];
  const behave = new Map<string, () => Promise<void> | void>();
  await mkdir(directory, { recursive: true });
  const endpoint = join(directory, 'csi.sock');
  const dataOf = (volumeId: string): string => join(directory, 'volumes', volumeId);

  const publish = async ({ volumeId, targetPath, readonly, volumeCapability }: Publish): Promise<object> => {
    if (volumeCapability !== null && volumeCapability.block !== null) {
      await writeFile(targetPath, `device of ${volumeId}`);
      return {};
    }
    await mkdir(targetPath, { recursive: true });
    await mkdir(dataOf(volumeId), { recursive: true });
    const mounted = (await mounter?.list())?.some((point) => point.path === targetPath) ?? true;
    if (mounter !== undefined && !mounted) {
      await mounter.mount({ source: dataOf(volumeId), target: targetPath, options: ['bind'] });
      if (readonly)
        await mounter.mount({ source: dataOf(volumeId), target: targetPath, options: ['remount', 'bind', 'ro'] });
    }
    return {};
  };
  const answers: Readonly<Record<string, (request: never) => object | Promise<object>>> = {
    nodeGetInfo: () => ({
      nodeId: options.nodeId ?? 'node-of-the-driver',
      maxVolumesPerNode: options.maxVolumes ?? 0,
      ...(options.topology === undefined ? {} : { accessibleTopology: { segments: options.topology } }),
    }),
    nodeGetCapabilities: () => ({
      capabilities: capabilities.map((capability) => ({ rpc: { type: NODE_CAPABILITIES[capability] } })),
    }),
    nodeStageVolume: () => ({}),
    nodeUnstageVolume: () => ({}),
    nodePublishVolume: publish,
    nodeUnpublishVolume: async ({ targetPath }: Publish) => {
      await mounter?.unmount(targetPath);
      await rm(targetPath, { recursive: true, force: true });
      return {};
    },
    nodeGetVolumeStats: () => ({
      usage: [
        { unit: 1, total: 1000, available: 600, used: 400 },
        { unit: 2, total: 100, available: 90, used: 10 },
      ],
    }),
    nodeExpandVolume: ({ capacityRange }: { readonly capacityRange: { readonly requiredBytes: number } }) => ({
      capacityBytes: capacityRange.requiredBytes,
    }),
  };
  const implementation = Object.fromEntries(
    Object.entries(answers).map(([method, answer]) => [
      method,
      async (request: never) => {
        calls.push({ method, request });
        await behave.get(method)?.();
        return answer(request);
      },
    ]),
  );
  const stopDriver = await serveGrpc(endpoint, [{ messages: CSI_MESSAGES, methods: CSI_METHODS, implementation }]);
  const stopRegistration =
    registry === undefined
      ? undefined
      : await serveGrpc(join(registry, `${name}-reg.sock`), [
          {
            messages: REGISTRATION_MESSAGES,
            methods: REGISTRATION_METHODS,
            implementation: {
              getInfo: () => ({ type: 'CSIPlugin', name, endpoint, supportedVersions: ['1.0.0'] }),
              notifyRegistrationStatus: (status: { pluginRegistered: boolean; error: string }) => {
                registrations.push({ ...status });
                return {};
              },
            },
          },
        ]);
  return {
    name,
    endpoint,
    calls,
    registrations,
    behave,
    stop: async () => {
      await stopRegistration?.();
      await stopDriver();
    },
  };
}

/** Returns gRPC's error `Internal`: the driver has not changed anything. */
export const internal = (message: string): PluginError => new PluginError(13, message);
/** Returns gRPC's error `DeadlineExceeded`: it is unknown whether the driver has changed anything. */
export const deadlineExceeded = (): PluginError => new PluginError(4, 'too slow');
