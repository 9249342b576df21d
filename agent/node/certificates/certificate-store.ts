/**
 * Stores a key and certificate in one PEM file, as the kubelet does: `<dir>/<name>-<time>.pem`, with a link
 * `<name>-current.pem` that is replaced when a new pair exists. A crash leaves either the old or the new pair.
 */
import { readPem } from '../../../api/pki/pem.ts';
import { createPrivateKey } from 'node:crypto';
import { readlink, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolder, moveFile, replaceFile } from '../../../api/machinery/replace-file.ts';
import { readRegularFile } from '../../base/files/regular-file.ts';
import { type Certificate, parseCertificates } from '../../../api/pki/certificate.ts';

/** A certificate with its key, as the file has them. */
export interface StoredPair {
  readonly certificatePem: string;
  readonly keyPem: string;
  readonly leaf: Certificate;
  /** The time of its storage, from the name of its file; `undefined` if the name has no time. */
  readonly storedAtMs: number | undefined;
}

/** Returns the path of the link to the pair in use. */
export function currentPath(directory: string, name: string): string {
  return join(directory, `${name}-current.pem`);
}

const MAX_PAIR_BYTES = 1024 * 1024;

/**
 * Reads the pair in use. Resolves to `undefined` if there is no pair, or if the file is damaged. Rejects if the file cannot be
 * read, is larger than 1 MiB or is not a regular file.
 */
export async function readPair(directory: string, name: string): Promise<StoredPair | undefined> {
  let text: string;
  try {
    text = (await readRegularFile(currentPath(directory, name), MAX_PAIR_BYTES)).toString();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  const blocks = readPem(text);
  const certificatePem = blocks.flatMap((block) => (block.label === 'CERTIFICATE' ? `${block.text}\n` : [])).join('');
  const keyPem = blocks.find(({ label }) => label.endsWith('PRIVATE KEY'))?.text ?? '';
  try {
    createPrivateKey(keyPem);
    const [leaf] = parseCertificates(certificatePem);
    if (leaf === undefined) return undefined;
    return { certificatePem, keyPem, leaf, storedAtMs: await storedAt(directory, name) };
  } catch {
    // A damaged pair counts as missing, and a new one is requested.
    return undefined;
  }
}

async function storedAt(directory: string, name: string): Promise<number | undefined> {
  // The pair may be stored as a regular file instead of a link to one. Such a pair has no time.
  const file = await readlink(currentPath(directory, name)).catch(() => '');
  const [, day, hour, minute, second] = /-(\d{4}-\d\d-\d\d)-(\d\d)-(\d\d)-(\d\d)\.pem$/.exec(file) ?? [];
  if (day === undefined) return undefined;
  const atMs = Date.parse(`${day}T${hour}:${minute}:${second}Z`);
  return Number.isNaN(atMs) ? undefined : atMs;
}

/** Writes the pair with mode 0600 and moves the link to it. Files of earlier pairs stay, as with the kubelet. */
export async function writePair(
  directory: string,
  name: string,
  pair: { readonly certificatePem: string; readonly keyPem: string },
  now: Date,
): Promise<void> {
  await makeFolder(directory, 0o700);
  const stamp = now.toISOString().slice(0, 19).replace(/[T:]/g, '-');
  const file = `${name}-${stamp}.pem`;
  // After the clock was set back, the file may be that of the pair in use. So it is replaced and not overwritten.
  const text = `${pair.certificatePem.trimEnd()}\n${pair.keyPem.trimEnd()}\n`;
  await replaceFile(join(directory, file), text, { mode: 0o600 });
  const link = `${currentPath(directory, name)}.new`;
  await rm(link, { force: true });
  await symlink(file, link);
  await moveFile(link, currentPath(directory, name));
}
