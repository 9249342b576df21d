/**
 * The cluster's authority is replaced in three stages, each of which leaves a directory that a control plane can start from:
 * `ca.crt` holds every certificate that is trusted, the one of `ca.key` first; `ca-next` waits for its turn. Called by
 * `orchlet certs rotate-ca`.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAuthority } from './authority.ts';
import { readIfThere, writeFileAtomic } from './files.ts';

export class AuthorityStageError extends Error {
  override readonly name = 'AuthorityStageError';
}

const NEXT = 'ca-next';

async function read(directory: string, name: string): Promise<string> {
  const text = await readIfThere(join(directory, name));
  if (text === undefined) throw new AuthorityStageError(`${join(directory, name)} is missing`);
  return text;
}

const blocksOf = (pem: string): string[] =>
  (pem.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? []).map((block) => `${block}\n`);

/** A new authority is made, and trusted. The old one signs. */
export async function prepareAuthority(directory: string, nowMs: number): Promise<void> {
  const current = blocksOf(await read(directory, 'ca.crt'));
  if (current.length > 1)
    throw new AuthorityStageError('a rotation is under way already: go on with --stage switch or finish');
  // Of another name: clients look authorities up by it.
  const next = await ensureAuthority(directory, NEXT, `kubernetes@${Math.floor(nowMs / 1000)}`, nowMs);
  await writeFileAtomic(join(directory, 'ca.crt'), [...current, ...blocksOf(next.certificatePem)].join(''), 0o644);
}

/** The new authority signs. The old one is trusted. A crash in between leaves a key beside a certificate that waits: run it again. */
export async function switchAuthority(directory: string): Promise<void> {
  const next = await readIfThere(join(directory, `${NEXT}.crt`));
  if (next === undefined) throw new AuthorityStageError('no authority is prepared: begin with --stage prepare');
  const former = blocksOf(await read(directory, 'ca.crt')).filter((block) => !blocksOf(next).includes(block));
  await writeFileAtomic(join(directory, 'ca.key'), await read(directory, `${NEXT}.key`), 0o600);
  await writeFileAtomic(join(directory, 'ca.crt'), [...blocksOf(next), ...former].join(''), 0o644);
  await rm(join(directory, `${NEXT}.crt`));
  await rm(join(directory, `${NEXT}.key`));
}

/** The old authority is trusted no more. */
export async function finishAuthority(directory: string): Promise<void> {
  if ((await readIfThere(join(directory, `${NEXT}.crt`))) !== undefined)
    throw new AuthorityStageError('the old authority signs still: --stage switch comes first');
  const [current, ...former] = blocksOf(await read(directory, 'ca.crt'));
  if (current === undefined || former.length === 0) throw new AuthorityStageError('no rotation is under way');
  await writeFileAtomic(join(directory, 'ca.crt'), current, 0o644);
}
