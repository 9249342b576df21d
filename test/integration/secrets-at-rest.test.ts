/**
 * Tests encryption at rest in a running control plane: the disk contains no plain text, and keys are rotated at run time, by
 * file and by command.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { secrets } from '../../api/client/resources.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const TEXT = 'what nobody may read';
const directory = temporaryFolder();
const dataDir = join(directory, 'data');
const file = join(directory, 'encryption.yaml');
const run = promisify(execFile);

after(() => rmSync(directory, { recursive: true, force: true }));

const key = (): string => randomBytes(32).toString('base64');
const [first, second] = [key(), key()];
function write(...providers: readonly string[]): void {
  const lines = ['kind: EncryptionConfiguration', 'apiVersion: apiserver.config.k8s.io/v1', 'resources:'];
  const text = [...lines, '- resources: [secrets]', '  providers:', ...providers.map((one) => `  - ${one}`), ''].join(
    '\n',
  );
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

async function withPlane(use: (plane: ControlPlane) => Promise<void>): Promise<void> {
  const plane = await startControlPlane({
    flags: {
      bindAddress: '127.0.0.1',
      securePort: 0,
      dataDir,
      encryptionProviderConfig: file,
      encryptionProviderConfigAutomaticReload: true,
      controllers: ['-*'],
      scheduler: false,
    },
  });
  try {
    await use(plane);
  } finally {
    await plane.close();
  }
}

/** Returns all files of the storage. */
function kept(): string {
  const storage = join(dataDir, 'storage');
  return readdirSync(storage, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name)).toString('latin1'))
    .join('\n');
}

const reencrypt = (...more: readonly string[]) =>
  run(ORCHLET, ['secrets', 'reencrypt', '--kubeconfig', join(dataDir, 'admin.kubeconfig'), ...more]);

test('secrets are never stored in clear, and keys are rotated while the server runs', async () => {
  const aesgcm = `aesgcm: {keys: [{name: old, secret: ${first}}]}`;
  const secretbox = `secretbox: {keys: [{name: new, secret: ${second}}]}`;
  write(aesgcm);
  await withPlane(async (plane) => {
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, stringData: { k: TEXT } };
    await plane.client.create(secrets, 'default', secret);
    write(secretbox, aesgcm);
    const deadline = Date.now() + 120_000;
    // Until the changed file is reloaded, the command encrypts with the old key.
    for (;;) {
      const { stdout } = await reencrypt();
      assert.match(stdout, /^\d+ objects rewritten\n$/);
      if (kept().includes('k8s:enc:secretbox:v1:new:')) break;
      assert.ok(Date.now() < deadline, 'the changed file is not taken up');
    }
    assert.equal((await reencrypt('--quiet')).stdout, '');
  });
  const disk = kept();
  for (const hidden of [TEXT, Buffer.from(TEXT).toString('base64'), first, second]) assert.ok(!disk.includes(hidden));
  write(secretbox);
  await withPlane(async (plane) => {
    const found = (await plane.client.get(secrets, 'default', 's')) as { data?: Record<string, string> };
    assert.equal(Buffer.from(found.data?.['k'] ?? '', 'base64').toString(), TEXT);
  });
});
