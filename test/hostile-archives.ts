/**
 * Creates malicious tar archives for tests of everything that reads archives: paths that lead outside, forbidden entries, and
 * truncated archives.
 */
import { type Header, pack } from 'tar-stream';

export interface ArchivePart {
  readonly header: Partial<Header> & { readonly name: string };
  readonly content?: string | Buffer;
}

/** `refusal` matches the end of the error. The archive tries to write to the directory `outside`. */
export interface HostileArchive {
  readonly what: string;
  readonly refusal: RegExp;
  readonly make: (outside: string) => Promise<Buffer>;
}

/** Returns a tar archive of the parts, whose headers are written as they are. */
export async function tarOf(parts: readonly ArchivePart[]): Promise<Buffer> {
  const archive = pack();
  for (const { header, content } of parts) archive.entry(header, content ?? '');
  archive.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of archive) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/** Returns a record of a pax header, which begins with its own length. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9].find((count) => String(rest.length + count).length === count) ?? 0;
  return `${rest.length + digits}${rest}`;
}

/** Returns the header of a file of 2^63 bytes without its content. */
async function headerOfHugeFile(name: string): Promise<Buffer> {
  const header = Buffer.from((await tarOf([{ header: { name } }])).subarray(0, 512));
  header.fill(0, 124, 136);
  header[124] = 0x80;
  header[128] = 0x80;
  return withChecksum(header);
}

/** Returns a header for the entry after it, with its records. */
export async function paxHeader(name: string, records: string): Promise<Buffer> {
  const file = Buffer.from(await tarOf([{ header: { name }, content: records }]));
  file.write('x', 156);
  withChecksum(file.subarray(0, 512));
  return file;
}

/** Computes the checksum of a changed header, and returns the header. */
function withChecksum(header: Buffer): Buffer {
  header.fill(' ', 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}

/**
 * Returns archives that must be refused. Each begins like `whole`, a valid archive. `name` is a name that a valid archive may
 * contain.
 */
export function hostileArchives(whole: readonly ArchivePart[], name: string): readonly HostileArchive[] {
  const added = (what: string, refusal: RegExp, ...parts: ((outside: string) => ArchivePart)[]): HostileArchive => ({
    what,
    refusal,
    make: (outside) => tarOf([...whole, ...parts.map((part) => part(outside))]),
  });
  const entry =
    (header: (outside: string) => ArchivePart['header'], content = 'planted') =>
    (outside: string): ArchivePart => ({
      header: header(outside),
      ...(header(outside).type === undefined ? { content } : {}),
    });
  return [
    added(
      'a path that leads out',
      /leads out of the archive$/,
      entry(() => ({ name: '../planted' })),
    ),
    added(
      'a path that leads out in its middle',
      /leads out of the archive$/,
      entry(() => ({ name: 'a/../../planted' })),
    ),
    added(
      'an absolute path',
      /has an absolute path$/,
      entry((outside) => ({ name: `${outside}/planted` })),
    ),
    added(
      'an absolute link',
      /has an absolute path$/,
      entry((outside) => ({ name, type: 'symlink', linkname: outside })),
    ),
    added(
      'a link that leads out',
      /leads out of the archive$/,
      entry(() => ({ name, type: 'symlink', linkname: '../../etc' })),
    ),
    added(
      'a file below a link that leads out',
      /leads out of the archive$/,
      entry(() => ({ name, type: 'symlink', linkname: '../..' })),
      entry(() => ({ name: `${name}/planted` })),
    ),
    added(
      'a hard link to a file of the host',
      /has an absolute path$/,
      entry(() => ({ name, type: 'link', linkname: '/etc/shadow' })),
    ),
    added(
      'a hard link that leads out',
      /leads out of the archive$/,
      entry(() => ({ name, type: 'link', linkname: '../etc/shadow' })),
    ),
    added(
      'a device',
      /is a character-device$/,
      entry(() => ({ name, type: 'character-device', devmajor: 1, devminor: 5 })),
    ),
    added(
      'a disk',
      /is a block-device$/,
      entry(() => ({ name, type: 'block-device', devmajor: 8, devminor: 0 })),
    ),
    added(
      'a FIFO',
      /is a fifo$/,
      entry(() => ({ name, type: 'fifo' })),
    ),
    ...[
      {
        what: 'a header of a megabyte, as each of thousands of entries can have',
        refusal: /has a header of more than 65536 bytes$/,
        records: paxRecord('comment', 'x'.repeat(1 << 20)),
      },
      {
        what: 'a sparse file, whose name readers of sparse files take from elsewhere',
        refusal: /has a sparse file$/,
        records: paxRecord('GNU.sparse.name', '../planted'),
      },
      {
        what: 'malformed records in a header',
        refusal: /its pax records are malformed\.$/,
        records: '99 path=../planted\n',
      },
    ].map(({ what, refusal, records }) => ({
      what,
      refusal,
      make: async () => Buffer.concat([await paxHeader(name, records), await tarOf(whole)]),
    })),
    {
      what: 'an entry of eight exabytes',
      refusal: /Unexpected end of data$|has more than \d+ bytes$|has room for \d+$/,
      make: async () => Buffer.concat([await headerOfHugeFile(name), Buffer.alloc(1024)]),
    },
    {
      what: 'an end in the middle of a file',
      refusal: /Unexpected end of data$|unexpected end of file$/,
      make: async () =>
        (await tarOf([...whole, { header: { name: `${name}2` }, content: Buffer.alloc(8192) }])).subarray(0, -5000),
    },
    {
      what: 'no archive in it',
      refusal: /Invalid tar header/,
      make: () => Promise.resolve(Buffer.alloc(4096, 'no archive ')),
    },
    {
      what: 'nothing in it',
      refusal: /neither a manifest\.json|no backup/,
      make: () => Promise.resolve(Buffer.alloc(0)),
    },
  ];
}
