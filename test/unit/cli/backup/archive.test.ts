import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { readBackupArchive, writeBackupArchive } from '../../../../cli/backup/archive.ts';
import { type ArchivePart, hostileArchives, tarOf } from '../../../hostile-archives.ts';
import { orchlet } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const LAYOUT = { storage: 'storage/orchlet.db', otherNames: ['backup.json', 'pki', 'admin.kubeconfig'] };

function scratch(): { readonly data: string; readonly outside: string; readonly file: string } {
  const directory = temporaryFolder();
  const [data, outside] = [join(directory, 'data'), join(directory, 'outside')];
  mkdirSync(data);
  mkdirSync(outside);
  return { data, outside, file: join(directory, 'backup.tgz') };
}

describe('a backup', () => {
  it('comes back as it was, links as what they lead to', async () => {
    const { data, outside, file } = scratch();
    mkdirSync(join(data, 'storage'));
    mkdirSync(join(data, 'pki'));
    writeFileSync(join(data, LAYOUT.storage), Buffer.alloc(3_000_000, 'x'), { mode: 0o600 });
    writeFileSync(join(data, 'pki/ca.crt'), 'certificate');
    writeFileSync(join(outside, 'key'), 'key', { mode: 0o600 });
    writeFileSync(join(data, 'backup.json'), '');
    symlinkSync(join(outside, 'key'), join(data, 'pki/ca.key'));
    const paths = [LAYOUT.storage, 'pki', 'backup.json'];
    await writeBackupArchive(
      file,
      paths.map((path) => ({ directory: data, path })),
    );
    const fresh = join(data, 'fresh');
    mkdirSync(fresh);
    await readBackupArchive(file, fresh, LAYOUT);
    assert.equal(readFileSync(join(fresh, LAYOUT.storage), 'utf8'), 'x'.repeat(3_000_000));
    assert.equal(readFileSync(join(fresh, 'pki/ca.key'), 'utf8'), 'key');
    assert.equal(lstatSync(join(fresh, 'pki/ca.key')).mode, 0o100600);
    assert.equal(lstatSync(join(fresh, 'pki/ca.crt')).mode, 0o100644);
    assert.equal(readFileSync(join(fresh, 'backup.json'), 'utf8'), '');
  });

  it('that the tar of a host wrote is read too', async () => {
    const { data, outside, file } = scratch();
    mkdirSync(join(data, 'storage'));
    mkdirSync(join(data, 'pki'));
    for (const path of [LAYOUT.storage, 'pki/ca.key', 'backup.json']) writeFileSync(join(data, path), path);
    chmodSync(join(data, 'pki/ca.key'), 0o4777);
    for (const format of ['gnu', 'pax', 'ustar']) {
      execFileSync('tar', [`--format=${format}`, '-czf', file, '-C', data, 'backup.json', LAYOUT.storage, 'pki']);
      const fresh = join(outside, format);
      mkdirSync(fresh);
      await readBackupArchive(file, fresh, LAYOUT);
      assert.equal(readFileSync(join(fresh, 'pki/ca.key'), 'utf8'), 'pki/ca.key');
      assert.equal(lstatSync(join(fresh, 'pki/ca.key')).mode, 0o100644, 'no other user writes it, nor runs it');
    }
  });

  const whole: readonly ArchivePart[] = [
    { header: { name: 'backup.json' }, content: '{"format":1}' },
    { header: { name: 'pki/', type: 'directory' } },
  ];
  const more = (
    what: string,
    refusal: RegExp,
    ...parts: ArchivePart[]
  ): ReturnType<typeof hostileArchives>[number] => ({
    what,
    refusal,
    make: () => tarOf([...whole, ...parts]),
  });
  for (const { what, refusal, make } of [
    ...hostileArchives(whole, 'pki/ca.crt'),
    more('a link to another of its files', /is a link$/, {
      header: { name: LAYOUT.storage, type: 'symlink', linkname: '../backup.json' },
    }),
    more('a write-ahead log beside its storage', /which no backup has$/, {
      header: { name: 'storage/orchlet.db-wal' },
    }),
    more('a file of another program', /which no backup has$/, { header: { name: 'etc/passwd' } }),
    more('a key that is too large', /has more than \d+ bytes$/, {
      header: { name: 'pki/ca.key' },
      content: Buffer.alloc((1 << 20) + 1),
    }),
    more(
      'more files than any backup has',
      /more than 1000 entries$/,
      ...Array.from({ length: 1000 }, (_, at) => ({ header: { name: `pki/${at}` } })),
    ),
    more('a file twice', /EEXIST/, { header: { name: 'pki/a' } }, { header: { name: 'pki/a' } }),
    more('a storage that is none', /cannot be used|no backup/, { header: { name: LAYOUT.storage }, content: 'none' }),
    {
      what: 'a description that is no JSON',
      refusal: /no backup/,
      make: () => tarOf([{ header: { name: 'backup.json' }, content: '{' }]),
    },
  ])
    it(`with ${what} is refused in one line, and what was there stays`, async () => {
      const { data, outside, file } = scratch();
      writeFileSync(join(data, 'admin.kubeconfig'), 'before');
      writeFileSync(file, gzipSync(await make(outside)));
      const { code, stdout, stderr } = await orchlet(['restore', file, '--data-dir', data]);
      assert.equal(code, 1, stdout);
      assert.match(stderr.trimEnd(), refusal);
      // A busy machine takes the two seconds after which a step is reported.
      assert.match(stderr, /^(?:Reading the archive: \d+ s\n)*orchlet: [^\n]+\n$/);
      assert.deepEqual(readdirSync(data), ['admin.kubeconfig']);
      assert.equal(readFileSync(join(data, 'admin.kubeconfig'), 'utf8'), 'before');
      assert.deepEqual(readdirSync(outside), []);
    });

  it('that cannot be read leaves no data directory that was not there', async () => {
    const { data, file } = scratch();
    writeFileSync(file, 'no archive');
    const { code } = await orchlet(['restore', file, '--data-dir', join(data, 'new')]);
    assert.equal(code, 1);
    assert.deepEqual(readdirSync(data), []);
  });

  it('that is a FIFO is not waited for', { timeout: 20_000 }, async () => {
    const { data, file } = scratch();
    execFileSync('mkfifo', [file]);
    const { code, stderr } = await orchlet(['restore', file, '--data-dir', data]);
    assert.equal(code, 1);
    assert.match(stderr, /it is not a regular file\n$/);
    assert.deepEqual(readdirSync(data), []);
  });

  it('whose compressed bytes end early is refused in one line', async () => {
    const { data, file } = scratch();
    const bytes = gzipSync(await tarOf(whole));
    writeFileSync(file, bytes.subarray(0, bytes.length - 20));
    const { code, stderr } = await orchlet(['restore', file, '--data-dir', data]);
    assert.equal(code, 1);
    assert.match(stderr, /cannot be read as a backup: unexpected end of file\n$/);
    assert.deepEqual(readdirSync(data), []);
  });
});
