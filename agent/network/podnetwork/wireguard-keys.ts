/**
 * Creates, stores and reads the WireGuard keys of this node. The private key stays in one file of the agent's directory.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { stat, utimes } from 'node:fs/promises';
import { dirname } from 'node:path';
import { readOwnFile } from '../../base/files/regular-file.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';

interface StoredKeys {
  /** The public key. Both keys are in base64, as the tools of WireGuard write them. */
  readonly publicKey: string;
  readonly privateKey: string;
  readonly createdMs: number;
}

/** The length of a private key. */
const KEY_BYTES = 32;
/** The bytes before the key itself in PKCS #8. */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b656e04220420', 'hex');

/** Reads the stored keys. Returns `undefined` if the file does not exist or holds no key. */
export async function readKeys(path: string): Promise<StoredKeys | undefined> {
  try {
    const privateKey = (await readOwnFile(path)).trim();
    const raw = Buffer.from(privateKey, 'base64');
    if (raw.length !== KEY_BYTES) return undefined;
    const key = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, raw]), format: 'der', type: 'pkcs8' });
    return { privateKey, publicKey: publicPart(createPublicKey(key)), createdMs: (await stat(path)).mtimeMs };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Generates a pair of X25519 keys. `nowMs` is recorded as the time of their creation. */
export function createKeys(nowMs: number): StoredKeys {
  const { privateKey, publicKey } = generateKeyPairSync('x25519');
  return {
    privateKey: fromUrl(privateKey.export({ format: 'jwk' }).d),
    publicKey: publicPart(publicKey),
    createdMs: nowMs,
  };
}

/**
 * Writes the private key to the file. The file's time records its creation, because the tool `wg` reads the same file, which
 * can have nothing but the key.
 */
export async function writeKeys(path: string, { privateKey, createdMs }: StoredKeys): Promise<void> {
  await makeFolder(dirname(path), 0o700);
  await replaceFile(path, `${privateKey}\n`, { mode: 0o600 });
  await utimes(path, createdMs / 1000, createdMs / 1000);
}

const publicPart = (key: KeyObject): string => fromUrl(key.export({ format: 'jwk' }).x);

const fromUrl = (text = ''): string => Buffer.from(text, 'base64url').toString('base64');
