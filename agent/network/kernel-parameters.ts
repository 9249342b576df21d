/**
 * Sets kernel parameters that the agent needs, and records the value before the first change below `/run`, because a reboot
 * empties that directory and resets the parameters. Parameters of the network belong to a network namespace, so each
 * namespace has records of its own.
 */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { errorMessage } from '../../api/meta/error-message.ts';
import { readOwnFile } from '../base/files/regular-file.ts';
import type { Logger } from '../../api/component/logger.ts';
import { networkNamespace } from './namespace-lock.ts';

const RECORDS = '/run/orchlet/kernel-parameters';
const PARAMETERS = '/proc/sys';

interface KernelParameterRecord {
  /** The name in the form of `/proc/sys`: `net/ipv4/ip_forward`. */
  readonly name: string;
  readonly before: string;
  /** The value that the agent has set. */
  readonly set: string;
}

/** The directories of records and parameters. */
export interface KernelParameterPlaces {
  readonly records?: string;
  readonly parameters?: string;
}

/**
 * Sets each parameter to 1. `parameters` maps names to files. A parameter that cannot be set is logged with `message`. Resolves
 * to whether all are set.
 */
export async function setKernelParameters(
  parameters: Readonly<Record<string, string>>,
  logger: Logger,
  message: string,
): Promise<boolean> {
  let areSet = true;
  for (const [name, path] of Object.entries(parameters)) {
    try {
      await setKernelParameter(path, '1');
    } catch (error) {
      areSet = false;
      logger.warn({ parameter: name, err: errorMessage(error) }, message);
    }
  }
  return areSet;
}

/** Sets a parameter by its file below `/proc/sys`, unless it has the value. Other files are written and not recorded. */
export async function setKernelParameter(
  path: string,
  value: string,
  { records = RECORDS, parameters = PARAMETERS }: KernelParameterPlaces = {},
): Promise<void> {
  const before = (await readFile(path, 'utf8')).trim();
  if (before === value) return;
  if (path.startsWith(`${parameters}/`)) {
    const record = { name: path.slice(parameters.length + 1), before, set: value };
    // Without the right to write below /run the parameter is set all the same, and stays as it is after a reset.
    await writeRecord(record, records).catch((error: NodeJS.ErrnoException) => {
      if (!['EACCES', 'EPERM', 'EROFS', 'EEXIST'].includes(error.code ?? '')) throw error;
    });
  }
  await writeFile(path, `${value}\n`);
}

/** Rejects with EEXIST if the parameter has a record, because that record has the value before the first change. */
async function writeRecord({ name, before, set }: KernelParameterRecord, records: string): Promise<void> {
  const directory = await namespaceDirectory(records);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await writeFile(join(directory, encodeURIComponent(name)), `${before}\n${set}\n`, { mode: 0o600, flag: 'wx' });
}

/** Returns the parameters that agents have set in this network namespace since the host started. */
export async function kernelParameterRecords({ records = RECORDS }: KernelParameterPlaces = {}): Promise<
  readonly KernelParameterRecord[]
> {
  const directory = await namespaceDirectory(records);
  const files = await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return Promise.all(
    files.sort().map(async (file) => {
      const [before = '', set = ''] = (await readOwnFile(join(directory, file))).split('\n');
      return { name: decodeURIComponent(file), before, set };
    }),
  );
}

/** Restores the value before the first change, unless another program has changed the parameter since. */
export async function restoreKernelParameter(
  { name, before, set }: KernelParameterRecord,
  { records = RECORDS, parameters = PARAMETERS }: KernelParameterPlaces = {},
): Promise<void> {
  const path = resolve(parameters, name);
  if (!path.startsWith(`${parameters}/`)) throw new Error(`${name} is not the name of a kernel parameter`);
  // A parameter of an interface or a module that is gone does not exist any more.
  const now = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  if (now.trim() === set) await writeFile(path, `${before}\n`);
  await rm(join(await namespaceDirectory(records), encodeURIComponent(name)), { force: true });
}

async function namespaceDirectory(records: string): Promise<string> {
  return join(records, await networkNamespace());
}
