import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { releaseFiles, unchangedMappings } from '../../../../cli/process/release-files.ts';

const MIB = 1024 * 1024;

const mapping = (line: string, changedKib: number): string =>
  `${line}\nSize:                 16 kB\nRss:                   8 kB\nAnonymous:            ${String(changedKib).padStart(4)} kB\nVmFlags: rd ex mr mw me\n`;

test('mappings of the executable are released that are not writable and have no changed pages', () => {
  const smaps = [
    mapping('00400000-0082e000 r--p 00000000 00:1f 1234                              /opt/my node', 0),
    mapping('0082e000-03489000 r-xp 0042e000 00:1f 1234                              /opt/my node', 0),
    mapping('03489000-07400000 r--p 06e00000 00:1f 1234                              /opt/my node', 4),
    mapping('07400000-07500000 rw-p 06f00000 00:1f 1234                              /opt/my node', 0),
    mapping('07510000-07520000 r-xp 0042e000 00:1f 1234                              /opt/my node', 0),
    mapping('07600000-07700000 r--s 00000000 00:1f 77                                /var/orchlet.db-shm', 0),
    mapping('39000000-39100000 r-xp 00000000 00:00 0                                 [heap]', 0),
    mapping('7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                         [vdso]', 0),
    mapping('7fff00000000-7fff00001000 r-xp 00000000 fe:01 99                        /lib/libc.so.6', 0),
  ];
  assert.deepEqual(unchangedMappings(smaps.join(''), '/opt/my node'), [
    { address: 0x400000n, length: 0x42e000n },
    { address: 0x82e000n, length: 0x2c5b000n },
  ]);
  assert.deepEqual(unchangedMappings('', '/opt/my node'), []);
});

test(
  'pages of the program that are not used leave the process, which goes on',
  { skip: process.getBuiltinModule('node:ffi') === undefined && 'no FFI' },
  () => {
    const before = fileBytes();
    releaseFiles();
    assert.ok(fileBytes() < before - 20 * MIB);
    assert.deepEqual(JSON.parse('{"a":[1]}'), { a: [1] });
  },
);

function fileBytes(): number {
  return Number(/^RssFile:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * 1024;
}
