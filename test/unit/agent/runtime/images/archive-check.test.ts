import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { archiveReferences } from '../../../../../agent/runtime/images/archive-check.ts';
import { hostArchitecture, imageArchive } from '../../../../../agent/runtime/images/image-archive.ts';
import { type ArchivePart, hostileArchives, tarOf } from '../../../../hostile-archives.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const manifest = (content: string): ArchivePart => ({ header: { name: 'manifest.json' }, content });
const GOOD = [manifest(JSON.stringify([{ RepoTags: ['orchlet.test/a:1'] }, { RepoTags: null }, {}]))];

describe('an image archive', () => {
  const image = { references: ['orchlet.test/a:1', 'b@sha256:0'], files: [], command: ['/a'], env: [] };

  it('is read for the names of its images, also compressed', async () => {
    const directory = temporaryFolder();
    const archive = await imageArchive([image], hostArchitecture());
    for (const bytes of [archive, gzipSync(archive), zstdCompressSync(archive)]) {
      await writeFile(join(directory, 'a.tar'), bytes);
      assert.deepEqual(await archiveReferences(join(directory, 'a.tar')), image.references);
    }
  });

  it('may have links within itself, as docker save writes them for layers that images share', async () => {
    const path = join(temporaryFolder(), 'a.tar');
    const layer: ArchivePart = { header: { name: 'two/layer.tar', type: 'symlink', linkname: '../one/layer.tar' } };
    await writeFile(path, await tarOf([{ header: { name: 'one/layer.tar' }, content: 'x' }, layer, ...GOOD]));
    assert.deepEqual(await archiveReferences(path), ['orchlet.test/a:1']);
  });

  for (const { what, refusal, make } of hostileArchives(GOOD, 'one/layer.tar'))
    it(`with ${what} is refused in one line before a runtime sees it`, async () => {
      const directory = temporaryFolder();
      const path = join(directory, 'a.tar');
      await writeFile(path, await make(directory));
      await assert.rejects(archiveReferences(path), (error: Error) => {
        assert.ok(error.message.startsWith(`${path} cannot be read as an image archive: `));
        assert.match(error.message, refusal);
        assert.doesNotMatch(error.message, /\n/);
        return true;
      });
      assert.deepEqual(await readdir(directory), ['a.tar']);
    });

  for (const [what, ...parts] of [
    ['no list', manifest('{}')],
    ['no JSON', manifest('[')],
    ['options of a command as names', manifest('[{"RepoTags":["--all-platforms"]}]')],
    ['names that are none', manifest('[{"RepoTags":[{"a":1}]}]')],
    ['names over lines', manifest('[{"RepoTags":["a\\nb"]}]')],
    ['more than a mebibyte', manifest(`["${'x'.repeat(1 << 20)}"]`)],
    ['a second of its kind', ...GOOD, ...GOOD],
    ['a directory in its place', { header: { name: 'manifest.json', type: 'directory' } }],
  ] as const satisfies readonly (readonly [string, ...ArchivePart[]])[])
    it(`whose manifest has ${what} is refused, and nothing is thrown where nobody catches it`, async () => {
      const path = join(temporaryFolder(), 'a.tar');
      await writeFile(path, await tarOf(parts));
      await assert.rejects(archiveReferences(path), /cannot be read as an image archive: .*$/);
    });

  it('that is a FIFO is not waited for', { timeout: 10_000 }, async () => {
    const path = join(temporaryFolder(), 'fifo');
    execFileSync('mkfifo', [path]);
    await assert.rejects(archiveReferences(path), /is not a regular file$/);
  });
});
