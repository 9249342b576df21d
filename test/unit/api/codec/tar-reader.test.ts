/** The reader of tar archives. What is refused of archives is in `test/hostile-archives.ts`. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { tarHeaders } from '../../../../api/codec/tar-reader.ts';
import { paxHeader, tarOf } from '../../../hostile-archives.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const HEADER = 512;

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size));
}

/** Returns the names and the contents of the files. */
async function filesOf(bytes: Buffer, size = 1000): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  for await (const { name, type, content } of tarHeaders(inPieces(bytes, size))) {
    const pieces: Buffer[] = [];
    if (type === 'file') for await (const piece of content) pieces.push(piece);
    files[name] = type === 'file' ? Buffer.concat(pieces).toString() : type;
  }
  return files;
}

describe('a tar archive', () => {
  const long = `${'folder/'.repeat(60)}ü`;
  const wanted = { short: 'a', [long]: 'b'.repeat(1000), empty: '' };

  it('is read in pieces of any size, with long names in pax records', async () => {
    const parts = Object.entries(wanted).map(([name, content]) => ({ header: { name }, content }));
    const bytes = await tarOf(parts);
    for (const size of [1, 511, 512, 513, bytes.length]) assert.deepEqual(await filesOf(bytes, size), wanted);
  });

  for (const format of ['gnu', 'pax', 'ustar'])
    it(`of tar(1) in the format ${format} is read`, async () => {
      const directory = temporaryFolder();
      const deep = 'd'.repeat(90);
      mkdirSync(join(directory, deep, deep), { recursive: true });
      writeFileSync(join(directory, deep, deep, 'file'), 'content');
      const bytes = execFileSync('tar', ['-C', directory, `--format=${format}`, '-c', deep]);
      const files = await filesOf(bytes);
      assert.deepEqual(files, {
        [`${deep}/`]: 'directory',
        [`${deep}/${deep}/`]: 'directory',
        [`${deep}/${deep}/file`]: 'content',
      });
    });

  it('is not read beyond a hundred thousand headers, which an archive of kilobytes can have', async () => {
    const block = (await tarOf([{ header: { name: 'x', type: 'directory' } }])).subarray(0, HEADER);
    const endless = async function* (): AsyncGenerator<Buffer, void, undefined> {
      for (;;) yield await Promise.resolve(Buffer.concat(Array.from({ length: 1000 }, () => block)));
    };
    let read = 0;
    await assert.rejects(async () => {
      for await (const _header of tarHeaders(endless())) read += 1;
    }, /more than 100000 headers/);
    assert.equal(read, 100_000);
  });

  it('that ends where pax records should begin is refused as truncated', async () => {
    // Records that fill their blocks have no padding, whose absence would show the truncation.
    const bytes = await paxHeader('pax', 'x'.repeat(HEADER));
    await assert.rejects(filesOf(bytes.subarray(0, HEADER)), /Unexpected end of data/);
  });

  it('whose content is left unread goes on with the next entry', async () => {
    const bytes = await tarOf([
      { header: { name: 'one' }, content: 'x'.repeat(5000) },
      { header: { name: 'two' }, content: 'y' },
    ]);
    const names: string[] = [];
    for await (const { name } of tarHeaders(inPieces(bytes, 700))) names.push(name);
    assert.deepEqual(names, ['one', 'two']);
  });
});
