/**
 * Rotates the cluster CA in three stages. Each stage leaves a directory from which a control plane can start: `ca.crt` contains
 * every trusted certificate, with the one of `ca.key` first, and `ca-next` is the prepared CA. Each stage also writes
 * `ca-bundle.jws`: the new content of `ca.crt`, signed with a key that all clients trust at that time. Agents only accept such
 * a bundle.
 */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { join } from 'node:path';
import { PlainError } from '../../../api/component/plain-error.ts';
import { signCaBundle, verifyCaBundle } from '../../../api/pki/ca-bundle.ts';
import { removeFile } from '../../../api/machinery/replace-file.ts';
import { parseCertificates } from '../../../api/pki/certificate.ts';
import { readPem } from '../../../api/pki/pem.ts';
import { ensureAuthority } from './authority.ts';
import { readIfThere, writeFileAtomic } from './files.ts';

/** A stage that cannot run now; the message says what to do first. */
class AuthorityStageError extends PlainError {
  override readonly name = 'AuthorityStageError';
}

const NEXT = 'ca-next';
const BUNDLE = 'ca-bundle.jws';

async function read(directory: string, name: string): Promise<string> {
  const text = await readIfThere(join(directory, name));
  if (text === undefined) throw new AuthorityStageError(`${join(directory, name)} is missing`);
  return text;
}

const blocksOf = (pem: string): string[] =>
  readPem(pem).flatMap(({ label, text }) => (label === 'CERTIFICATE' ? `${text}\n` : []));

/** Returns the signed bundle of the last stage; `undefined` before the first rotation. */
export async function readSignedBundle(directory: string): Promise<string | undefined> {
  return (await readIfThere(join(directory, BUNDLE)))?.trim();
}

/** Writes the bundle of the new trusted certificates, signed with the current `ca.key`. */
async function writeSignedBundle(directory: string, certificates: string, nowMs: number): Promise<void> {
  const privateKey = createPrivateKey(await read(directory, 'ca.key'));
  const former = await readSignedBundle(directory);
  // This is the control plane's own file, which any of its CAs may have signed.
  const formerMs =
    former === undefined ? 0 : (verifyCaBundle(former, await read(directory, 'ca.crt'))?.issuedAtMs ?? 0);
  const bundle = { certificates, issuedAtMs: Math.max(nowMs, formerMs + 1) };
  await writeFileAtomic(join(directory, BUNDLE), `${signCaBundle(bundle, privateKey)}\n`, 0o644);
}

async function keyBelongsTo(directory: string, pem: string): Promise<boolean> {
  const key = createPublicKey(await read(directory, 'ca.key'));
  return parseCertificates(pem)[0]?.publicKey.equals(key) === true;
}

/**
 * Creates a new CA that is trusted in addition to the old one. The old CA still issues certificates. Rejects with a
 * `PlainError` if a rotation is already in progress.
 */
export async function prepareAuthority(directory: string, nowMs: number): Promise<void> {
  const current = blocksOf(await read(directory, 'ca.crt'));
  if (current.length > 1)
    throw new AuthorityStageError('a rotation is already in progress; continue with --stage switch or finish');
  // The new CA needs another name, because clients look up CAs by name.
  const next = await ensureAuthority(directory, NEXT, `kubernetes@${Math.floor(nowMs / 1000)}`, nowMs);
  const trusted = [...current, ...blocksOf(next.certificatePem)].join('');
  await writeSignedBundle(directory, trusted, nowMs);
  await writeFileAtomic(join(directory, 'ca.crt'), trusted, 0o644);
}

/**
 * Makes the new CA issue certificates while the old one is still trusted. The old key signs the bundle, so that the
 * bundle is worthless once the old CA is removed. After a crash in between, `ca.key` may already be the new key;
 * running the stage again completes it. Rejects with a `PlainError` if no CA is prepared.
 */
export async function switchAuthority(directory: string, nowMs: number): Promise<void> {
  const next = await readIfThere(join(directory, `${NEXT}.crt`));
  if (next === undefined) throw new AuthorityStageError('no CA is prepared; start with --stage prepare');
  const former = blocksOf(await read(directory, 'ca.crt')).filter((block) => !blocksOf(next).includes(block));
  const trusted = [...blocksOf(next), ...former].join('');
  if (!(await keyBelongsTo(directory, next))) await writeSignedBundle(directory, trusted, nowMs);
  await writeFileAtomic(join(directory, 'ca.key'), await read(directory, `${NEXT}.key`), 0o600);
  await writeFileAtomic(join(directory, 'ca.crt'), trusted, 0o644);
  await removeFile(join(directory, `${NEXT}.crt`));
  await removeFile(join(directory, `${NEXT}.key`));
}

/** Removes the old CA from the trusted certificates. Rejects with a `PlainError` before the stage `switch`. */
export async function finishAuthority(directory: string, nowMs: number): Promise<void> {
  if ((await readIfThere(join(directory, `${NEXT}.crt`))) !== undefined)
    throw new AuthorityStageError('the old CA still issues certificates; run --stage switch first');
  const [current, ...former] = blocksOf(await read(directory, 'ca.crt'));
  if (current === undefined || former.length === 0) throw new AuthorityStageError('no rotation is in progress');
  await writeSignedBundle(directory, current, nowMs);
  await writeFileAtomic(join(directory, 'ca.crt'), current, 0o644);
}
