/**
 * Replaces the CA of the cluster in three stages, each of which leaves a directory that a control plane can start from: `ca.crt`
 * holds every certificate that is trusted, the one of `ca.key` first; `ca-next` waits for its turn. Each stage also writes
 * `ca-bundle.jws`, the new content of `ca.crt` signed with a key that everybody trusts at that time: agents follow nothing else.
 * Called by `orchlet certs rotate-ca`.
 */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { signCaBundle, verifyCaBundle } from '../../api/pki/ca-bundle.ts';
import { parseCertificates } from '../../api/pki/certificate.ts';
import { readPem } from '../../api/pki/pem.ts';
import { ensureAuthority } from './authority.ts';
import { readIfThere, writeFileAtomic } from './files.ts';

export class AuthorityStageError extends Error {
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

/** The signed bundle of the last rotation; `undefined` before the first. */
export async function readSignedBundle(directory: string): Promise<string | undefined> {
  return (await readIfThere(join(directory, BUNDLE)))?.trim();
}

/** Signs what will be trusted with `ca.key` as it is now. */
async function vouchFor(directory: string, certificates: string, nowMs: number): Promise<void> {
  const privateKey = createPrivateKey(await read(directory, 'ca.key'));
  const former = await readSignedBundle(directory);
  // It is our own file: any of its CAs may have signed it.
  const formerMs =
    former === undefined ? 0 : (verifyCaBundle(former, await read(directory, 'ca.crt'))?.issuedAtMs ?? 0);
  const bundle = { certificates, issuedAtMs: Math.max(nowMs, formerMs + 1) };
  await writeFileAtomic(join(directory, BUNDLE), `${signCaBundle(bundle, privateKey)}\n`, 0o644);
}

async function keyBelongsTo(directory: string, pem: string): Promise<boolean> {
  const key = createPublicKey(await read(directory, 'ca.key'));
  return parseCertificates(pem)[0]?.publicKey.equals(key) === true;
}

/** Creates a new CA that is trusted beside the old one. The old one signs. */
export async function prepareAuthority(directory: string, nowMs: number): Promise<void> {
  const current = blocksOf(await read(directory, 'ca.crt'));
  if (current.length > 1)
    throw new AuthorityStageError('a rotation is under way already: go on with --stage switch or finish');
  // Of another name: clients look CAs up by it.
  const next = await ensureAuthority(directory, NEXT, `kubernetes@${Math.floor(nowMs / 1000)}`, nowMs);
  const trusted = [...current, ...blocksOf(next.certificatePem)].join('');
  await vouchFor(directory, trusted, nowMs);
  await writeFileAtomic(join(directory, 'ca.crt'), trusted, 0o644);
}

/**
 * The new CA signs from now on; the old one is still trusted. The old key vouches for it, so that this bundle is worth nothing
 * once the old CA is gone. After a crash in between, `ca.key` is the new one already: run it again.
 */
export async function switchAuthority(directory: string, nowMs: number): Promise<void> {
  const next = await readIfThere(join(directory, `${NEXT}.crt`));
  if (next === undefined) throw new AuthorityStageError('no CA is prepared: begin with --stage prepare');
  const former = blocksOf(await read(directory, 'ca.crt')).filter((block) => !blocksOf(next).includes(block));
  const trusted = [...blocksOf(next), ...former].join('');
  if (!(await keyBelongsTo(directory, next))) await vouchFor(directory, trusted, nowMs);
  await writeFileAtomic(join(directory, 'ca.key'), await read(directory, `${NEXT}.key`), 0o600);
  await writeFileAtomic(join(directory, 'ca.crt'), trusted, 0o644);
  await rm(join(directory, `${NEXT}.crt`));
  await rm(join(directory, `${NEXT}.key`));
}

/** The old CA is no longer trusted. */
export async function finishAuthority(directory: string, nowMs: number): Promise<void> {
  if ((await readIfThere(join(directory, `${NEXT}.crt`))) !== undefined)
    throw new AuthorityStageError('the old CA still signs: --stage switch comes first');
  const [current, ...former] = blocksOf(await read(directory, 'ca.crt'));
  if (current === undefined || former.length === 0) throw new AuthorityStageError('no rotation is under way');
  await vouchFor(directory, current, nowMs);
  await writeFileAtomic(join(directory, 'ca.crt'), current, 0o644);
}
