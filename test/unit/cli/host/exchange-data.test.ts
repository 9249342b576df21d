import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import promises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { exchangeData } from '../../../../cli/host/exchange-data.ts';
import { startControlPlane } from '../../../../controlplane/main.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const FILES = ['storage/orchlet.db', 'pki/ca.key', 'admin.kubeconfig'];

function fill(directory: string, content: string): void {
  for (const file of FILES) {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    writeFileSync(join(directory, file), content);
  }
}

function prepare(): { readonly data: string; fresh(): string } {
  const data = temporaryFolder();
  fill(data, 'old');
  return {
    data,
    fresh() {
      const directory = mkdtempSync(join(data, 'restoring-'));
      fill(directory, 'new');
      return directory;
    },
  };
}

const contents = (directory: string): string[] =>
  FILES.map((file) => (existsSync(join(directory, file)) ? readFileSync(join(directory, file), 'utf8') : 'missing'));

/** Allows this number of renames. The next one and everything after it fails, as if the process had been killed. */
function failAfterRenames(t: TestContext, count: number): () => void {
  let left = count;
  const { rename } = promises;
  const mocked = t.mock.method(promises, 'rename', (from: string, to: string) => {
    if (left-- === 0) throw new Error('killed');
    return rename(from, to);
  });
  syncBuiltinESMExports();
  return () => {
    mocked.mock.restore();
    syncBuiltinESMExports();
  };
}

describe('a restore', () => {
  it('replaces the data and keeps the previous data', async () => {
    const { data, fresh } = prepare();
    const old = await exchangeData(data, fresh());
    assert.deepEqual(contents(data), ['new', 'new', 'new']);
    assert.deepEqual(contents(old ?? ''), ['old', 'old', 'old']);
    assert.equal(existsSync(join(data, 'restore-unfinished')), false);
  });

  // The first rename is that of the mark. Three move the old data, and three the new data.
  for (const renames of [0, 1, 2, 3, 4, 5, 6])
    it(`that is killed after ${renames} renames leaves the old data, or can only be repeated`, async (t) => {
      const { data, fresh } = prepare();
      const restore = failAfterRenames(t, renames);
      await assert.rejects(exchangeData(data, fresh()), /killed/);
      restore();
      const isMarked = existsSync(join(data, 'restore-unfinished'));
      if (!isMarked) assert.deepEqual(contents(data), ['old', 'old', 'old']);
      else
        await assert.rejects(
          startControlPlane({ flags: { dataDir: data, securePort: 0, bindAddress: '127.0.0.1' } }),
          /a restore into .* was interrupted: repeat 'orchlet restore'/,
        );
      assert.equal(isMarked, renames > 0);
      await exchangeData(data, fresh());
      assert.deepEqual(contents(data), ['new', 'new', 'new']);
      assert.equal(existsSync(join(data, 'restore-unfinished')), false);
      const before = readdirSync(data).filter((name) => name.startsWith('before-restore-'));
      for (const file of FILES)
        assert.ok(
          before.some(
            (name) => existsSync(join(data, name, file)) && readFileSync(join(data, name, file), 'utf8') === 'old',
          ),
          `${file} of the old data is kept`,
        );
    });
});
