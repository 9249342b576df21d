/**
 * Computes the paths of CSI volumes below the root directory. They are those of the kubelet, because drivers rely on some of
 * them. Reads and writes `vol_data.json`, which has everything that is needed to remove a volume without the API server.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readlink, rm, rmdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import { inDirectory } from '../../base/files/beneath.ts';

/** The content of `vol_data.json`. The names of the fields are the kubelet's. */
export interface VolumeData {
  /** The name of the persistent volume, or of an inline volume in its pod. */
  readonly specVolID: string;
  readonly volumeHandle: string;
  readonly driverName: string;
  readonly nodeName: string;
  readonly volumeLifecycleMode: 'Persistent' | 'Ephemeral';
  /** The name of the VolumeAttachment. Absent if the volume is not attached to nodes. */
  readonly attachmentID?: string;
}

/** The paths of one volume of one pod. */
export interface Places {
  readonly kind: 'filesystem' | 'block';
  /** Has the `vol_data.json` of the volume on this node, for all its pods. */
  readonly deviceData: string;
  readonly staging: string;
  /** Has the `vol_data.json` of the pod's volume. For a block device, it is the link to the device. */
  readonly podEntry: string;
  readonly target: string;
}

const DATA_FILE = 'vol_data.json';
/** The maximum size of the agent's file. Drivers can write into the same directory, so a larger file is not the agent's. */
const MAX_DATA_BYTES = 64 * 1024;

/**
 * Computes paths and reads the files. The directory of a filesystem volume is named by the hash of its handle, and that of a
 * block volume by its `specVolID`.
 */
export class CsiLayout {
  readonly root: string;

  constructor(rootDirectory: string) {
    this.root = rootDirectory;
  }

  /** Returns the kubelet's paths of a volume with a file system. */
  filesystem(data: Pick<VolumeData, 'driverName' | 'volumeHandle' | 'specVolID'>, podUid: string): Places {
    const deviceData = join(
      this.root,
      'plugins/kubernetes.io/csi',
      data.driverName,
      createHash('sha256').update(data.volumeHandle).digest('hex'),
    );
    const podEntry = join(this.podVolumes(podUid), data.specVolID);
    return {
      kind: 'filesystem',
      deviceData,
      staging: join(deviceData, 'globalmount'),
      podEntry,
      target: join(podEntry, 'mount'),
    };
  }

  /** Returns the kubelet's paths of a block volume. */
  block(data: Pick<VolumeData, 'specVolID'>, podUid: string): Places {
    const devices = this.#blockDevices();
    return {
      kind: 'block',
      deviceData: join(devices, data.specVolID, 'data'),
      staging: join(devices, 'staging', data.specVolID),
      podEntry: join(this.podDevices(podUid), data.specVolID),
      target: join(devices, 'publish', data.specVolID, podUid),
    };
  }

  /** Returns the directory with the mounted volumes of a pod. */
  podVolumes(podUid: string): string {
    return join(this.root, 'pods', podUid, 'volumes/kubernetes.io~csi');
  }

  /** Returns the directory with the block devices of a pod. */
  podDevices(podUid: string): string {
    return join(this.root, 'pods', podUid, 'volumeDevices/kubernetes.io~csi');
  }

  #blockDevices(): string {
    return join(this.root, 'plugins/kubernetes.io/csi/volumeDevices');
  }

  /** Returns the uids of the pods that use the volume: for a block volume those with a published device. */
  async podsWith({ driverName, volumeHandle, specVolID }: VolumeData, kind: Places['kind']): Promise<string[]> {
    if (kind === 'block') return names(join(this.#blockDevices(), 'publish', specVolID));
    const users: string[] = [];
    for (const uid of await names(join(this.root, 'pods'))) {
      const data = await readVolumeData(join(this.podVolumes(uid), specVolID));
      if (data?.driverName === driverName && data.volumeHandle === volumeHandle) users.push(uid);
    }
    return users;
  }

  /**
   * Returns every persistent volume of the node, whether or not a pod still uses it. Leaves out, and reports to the logger,
   * a volume whose record cannot be read: it must not keep the agent from starting.
   */
  async devices(logger?: Logger): Promise<{ readonly data: VolumeData; readonly kind: Places['kind'] }[]> {
    const found: { data: VolumeData; kind: Places['kind'] }[] = [];
    const take = async (directory: string, kind: Places['kind']): Promise<void> => {
      try {
        const data = await readVolumeData(directory);
        if (data !== undefined) found.push({ data, kind });
      } catch (error) {
        logger?.error({ err: error }, 'Cannot read the record of a CSI volume; it stays until a pod uses it again');
      }
    };
    const drivers = join(this.root, 'plugins/kubernetes.io/csi');
    for (const driver of await names(drivers)) {
      if (driver === 'volumeDevices') continue;
      for (const hash of await names(join(drivers, driver))) await take(join(drivers, driver, hash), 'filesystem');
    }
    for (const name of await names(this.#blockDevices())) await take(join(this.#blockDevices(), name, 'data'), 'block');
    return found;
  }

  /** Returns the volumes of a pod from the disk. A directory without data has no published volume. */
  async ofPod(podUid: string): Promise<{ readonly data: VolumeData; readonly places: Places }[]> {
    const found: { data: VolumeData; places: Places }[] = [];
    for (const name of await names(this.podVolumes(podUid))) {
      const data = await readVolumeData(join(this.podVolumes(podUid), name));
      if (data !== undefined) found.push({ data, places: this.filesystem(data, podUid) });
    }
    for (const name of await names(this.podDevices(podUid))) {
      const places = this.block({ specVolID: name }, podUid);
      const data = await readVolumeData(places.deviceData);
      if (data !== undefined) found.push({ data, places });
    }
    return found;
  }
}

/** Writes the file atomically, so that a killed agent leaves no partial file. */
export async function writeVolumeData(directory: string, data: VolumeData): Promise<void> {
  await makeFolder(directory, 0o750);
  await replaceFile(join(directory, DATA_FILE), JSON.stringify(data), { mode: 0o600 });
}

/** Reads `vol_data.json`. Resolves to `undefined` if it does not exist. Throws if it cannot be read. */
export async function readVolumeData(directory: string): Promise<VolumeData | undefined> {
  try {
    const data = await inDirectory(directory, (opened) => opened.readFile(DATA_FILE, MAX_DATA_BYTES));
    return JSON.parse(data.toString('utf8')) as VolumeData;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new Error(`${join(directory, DATA_FILE)} cannot be read: ${message}`, { cause: error });
  }
}

/** Removes `vol_data.json`. Does nothing if there is no file. */
export async function removeVolumeData(directory: string): Promise<void> {
  await rm(join(directory, DATA_FILE), { force: true });
}

async function names(directory: string): Promise<string[]> {
  return readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
}

/** Removes what is left of a pod's volume after it was unpublished. Never removes files through a mount. */
export async function removePodEntry(places: Places): Promise<void> {
  if (places.kind === 'block') {
    await rm(places.target, { force: true });
    await rm(places.podEntry, { force: true });
    return;
  }
  await removeEmpty(places.target);
  await removeVolumeData(places.podEntry);
  await removeEmpty(places.podEntry);
}

/** Creates or replaces the link to the device in the pod's directory. */
export async function linkDevice(places: Places): Promise<void> {
  await mkdir(dirname(places.podEntry), { recursive: true, mode: 0o750 });
  await rm(places.podEntry, { force: true });
  await symlink(places.target, places.podEntry);
}

/** Removes a directory. Does nothing if there is no such directory. Throws if it is not empty. */
export async function removeEmpty(directory: string): Promise<void> {
  await rmdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
}

/** Whether the pod has the volume, or an agent was about to publish it. */
export async function hasPodEntry(places: Places): Promise<boolean> {
  if (places.kind === 'filesystem') return (await readVolumeData(places.podEntry)) !== undefined;
  return readlink(places.podEntry).then(
    () => true,
    () => false,
  );
}
