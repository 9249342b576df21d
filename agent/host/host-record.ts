/**
 * Stores what an agent uses of its host, in its root directory. `orchlet reset` and `orchlet doctor` read it, because they
 * do not know the flags of the agent.
 */
import { join } from 'node:path';
import { readOwnFile } from '../base/files/regular-file.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';

/** The name of the file in the root directory of the agent. */
export const HOST_RECORD_FILE = 'host-record.json';

/** What an agent has used. Paths and endpoints are those of the flags. */
export interface HostRecord {
  readonly nodeName: string;
  readonly dockerEndpoint: string;
  /** Empty if the agent selected the runtime itself. */
  readonly criEndpoint: string;
  readonly podLogsDirectory: string;
  readonly cgroupRoot: string;
  /** Empty if the runtime does not report it. */
  readonly cgroupDriver: string;
}

const KEYS = [
  'nodeName',
  'dockerEndpoint',
  'criEndpoint',
  'podLogsDirectory',
  'cgroupRoot',
  'cgroupDriver',
] as const satisfies readonly (keyof HostRecord)[];

/** Replaces the file durably, and only if its content differs. */
export async function writeHostRecord(rootDirectory: string, record: HostRecord): Promise<void> {
  const text = `${JSON.stringify(record, null, 2)}\n`;
  const path = join(rootDirectory, HOST_RECORD_FILE);
  // The content changes only with the flags or the runtime.
  if ((await readOwnFile(path).catch(() => '')) !== text) await replaceFile(path, text, { mode: 0o600 });
}

/** Reads the record of the agent's last start. Returns `undefined` without a record, or with one that is damaged. */
export async function readHostRecord(rootDirectory: string): Promise<HostRecord | undefined> {
  // An unreadable record counts as none.
  const text = await readOwnFile(join(rootDirectory, HOST_RECORD_FILE)).catch(() => '');
  try {
    const found = JSON.parse(text) as Partial<Record<string, unknown>> | null;
    const values = KEYS.map((key) => [key, found?.[key]] as const);
    if (values.some(([, value]) => typeof value !== 'string')) return undefined;
    return Object.fromEntries(values) as unknown as HostRecord;
  } catch {
    // A damaged record counts as none, and the defaults apply.
    return undefined;
  }
}
