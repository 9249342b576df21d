/**
 * Reads and writes the content of `kubelet_internal_checkpoint` in the device plugins' directory, in the kubelet's format
 * and with its checksum.
 */
import { fnv32a, goMap, goSlice, goStruct } from '../checkpoint-file.ts';
import { isJsonObject } from '../../../../api/meta/json-object.ts';

/** The name of the file. */
export const CHECKPOINT_NAME = 'kubelet_internal_checkpoint';

/** The devices of one resource in one container. The names of the fields are those of the file. */
export interface PodDevicesEntry {
  readonly PodUID: string;
  readonly ContainerName: string;
  readonly ResourceName: string;
  /** Device ids by NUMA node; -1 for devices without a NUMA node. */
  readonly DeviceIDs: Readonly<Record<string, readonly string[]>>;
  /** The plugin's allocation response as base64 of its protobuf. */
  readonly AllocResp: string;
}

interface Data {
  readonly PodDeviceEntries: readonly PodDevicesEntry[] | null;
  readonly RegisteredDevices: Readonly<Record<string, readonly string[]>>;
}

interface DeviceCheckpoint {
  readonly Data: Data;
  readonly Checksum: number;
}

/** Builds the content of the file, with its checksum. */
export function deviceCheckpoint(
  entries: readonly PodDevicesEntry[],
  registered: Readonly<Record<string, readonly string[]>>,
): DeviceCheckpoint {
  // Go encodes a nil slice as null.
  const data: Data = { PodDeviceEntries: entries.length === 0 ? null : entries, RegisteredDevices: registered };
  return { Data: data, Checksum: deviceChecksum(data) };
}

/** Returns what `deviceCheckpoint` was given. Throws if the content is not a checkpoint or is corrupted. */
export function readDeviceCheckpoint(json: unknown): {
  readonly entries: readonly PodDevicesEntry[];
  readonly registered: Readonly<Record<string, readonly string[]>>;
} {
  const { Data: data, Checksum: checksum } = (json ?? {}) as Partial<DeviceCheckpoint>;
  if (!isData(data)) throw new Error('the file is not a device manager checkpoint');
  if (checksum !== deviceChecksum(data)) throw new Error('checkpoint is corrupted');
  return { entries: data.PodDeviceEntries ?? [], registered: data.RegisteredDevices ?? {} };
}

/** Returns the kubelet's checksum: FNV-1a over the data as Go prints it. */
export function deviceChecksum({ PodDeviceEntries, RegisteredDevices }: Data): number {
  const entry = (row: PodDevicesEntry): string =>
    goStruct([
      ['PodUID', 'string', row.PodUID],
      ['ContainerName', 'string', row.ContainerName],
      ['ResourceName', 'string', row.ResourceName],
      [
        'DeviceIDs',
        'checkpoint.DevicesPerNUMA',
        goMap(Object.entries(row.DeviceIDs).map(([node, ids]) => [Number(node), goSlice(ids)])),
      ],
      ['AllocResp', '[]uint8', goSlice([...Buffer.from(row.AllocResp, 'base64')])],
    ]);
  const registered = Object.entries(RegisteredDevices ?? {}).map(
    ([resource, ids]) => [resource, ids === null ? '<nil>' : goSlice(ids)] as const,
  );
  return fnv32a(
    `(checkpoint.checkpointData)${goStruct([
      [
        'PodDeviceEntries',
        '[]checkpoint.PodDevicesEntry',
        PodDeviceEntries === null ? '<nil>' : goSlice(PodDeviceEntries.map(entry)),
      ],
      ['RegisteredDevices', 'map[string][]string', goMap(registered)],
    ])}`,
  );
}

function isData(data: unknown): data is Data {
  if (!isJsonObject(data)) return false;
  const { PodDeviceEntries: entries, RegisteredDevices: registered } = data;
  return (
    (entries === null || (Array.isArray(entries) && entries.every(isEntry))) &&
    (registered === null || (isJsonObject(registered) && Object.values(registered).every(isIdsOrNull)))
  );
}

function isEntry(row: unknown): row is PodDevicesEntry {
  if (!isJsonObject(row) || !isJsonObject(row['DeviceIDs'])) return false;
  return (
    ['PodUID', 'ContainerName', 'ResourceName', 'AllocResp'].every((field) => typeof row[field] === 'string') &&
    Object.entries(row['DeviceIDs']).every(([node, ids]) => /^-?\d{1,9}$/.test(node) && isIds(ids))
  );
}

function isIds(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((id) => typeof id === 'string');
}

const isIdsOrNull = (value: unknown): boolean => value === null || isIds(value);
