/**
 * Builds the agent's own image of pod sandboxes, so that a host needs neither a registry nor a compiler. It contains the pause
 * program, the smallest process that holds a pod's namespaces, assembled from the source below.
 *
 * sigaction(SIGCHLD, SIG_IGN): the kernel reaps children by itself.
 *
 * sigaction(SIGTERM and SIGINT, leave): process 1 has no default handlers for them.
 *
 * loop: pause(); goto loop
 *
 * leave: exit_group(0)
 *
 * On arm64 `pause` is `ppoll(0, 0, 0, 0)`. The code is loaded at 0x400078, directly after the headers.
 */
import { Buffer } from 'node:buffer';
import type { Architecture, ImageContent } from './image-archive.ts';

/** The default of `--pod-infra-container-image`. */
export const PAUSE_IMAGE = 'orchlet.local/pause:1';

const CODE: Readonly<Record<Architecture, string>> = {
  amd64:
    'uA0AAAC/EQAAAEiNNVcAAAAx0kG6CAAAAA8FuA0AAAC/DwAAAEiNNVwAAAAx0kG6CAAAAA8FuA0AAAC/AgAAAEiNNUEAAAAx0kG6CAAAAA8FuCIAAAAPBev3' +
    'uOcAAAAx/w8FDx9EAAABAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAANIAQAAAAAAAAAAABAAAAADSAEAAAAAAAAAAAAAAAAAA',
  arm64:
    'yBCA0iACgNJBAwAQAgCA0gMBgNIBAADUyBCA0uABgNKBAwAQAgCA0gMBgNIBAADUyBCA0kAAgNLBAgAQAgCA0gMBgNIBAADUKAmA0gAAgNIBAIDSAgCA0gMA' +
    'gNIBAADU+v//F8gLgNIAAIDSAQAA1AEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA3ABAAAAAAAAAAAAEAAAAANwAQAAAAAAAAAAAAAAAAAA=',
};

const MACHINE: Readonly<Record<Architecture, number>> = { amd64: 0x3e, arm64: 0xb7 };

const LOAD_ADDRESS = 0x400000;
const HEADER_BYTES = 64;
const PROGRAM_HEADER_BYTES = 56;

/** Returns the pause image of an architecture. The content is the same for every host of the architecture. */
export function pauseImage(architecture: Architecture): ImageContent {
  return {
    references: [PAUSE_IMAGE],
    files: [{ path: 'pause', type: 'file', content: pauseProgram(architecture), mode: 0o755 }],
    command: ['/pause'],
    env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
  };
}

/** Builds a static ELF executable of about 300 bytes. */
function pauseProgram(architecture: Architecture): Buffer {
  const code = Buffer.from(CODE[architecture], 'base64');
  const headers = Buffer.alloc(HEADER_BYTES + PROGRAM_HEADER_BYTES);
  const sizeBytes = headers.length + code.length;
  headers.write('\x7fELF', 0, 'latin1');
  headers.set([2, 1, 1], 4); // 64-bit, little-endian, version 1
  headers.writeUInt16LE(2, 16); // executable
  headers.writeUInt16LE(MACHINE[architecture], 18);
  headers.writeUInt32LE(1, 20);
  headers.writeBigUInt64LE(BigInt(LOAD_ADDRESS + headers.length), 24); // entry point
  headers.writeBigUInt64LE(BigInt(HEADER_BYTES), 32); // program headers
  headers.writeUInt16LE(HEADER_BYTES, 52);
  headers.writeUInt16LE(PROGRAM_HEADER_BYTES, 54);
  headers.writeUInt16LE(1, 56);
  const program = headers.subarray(HEADER_BYTES);
  program.writeUInt32LE(1, 0); // PT_LOAD
  program.writeUInt32LE(7, 4); // read, write, execute
  program.writeBigUInt64LE(BigInt(LOAD_ADDRESS), 16);
  program.writeBigUInt64LE(BigInt(LOAD_ADDRESS), 24);
  program.writeBigUInt64LE(BigInt(sizeBytes), 32);
  program.writeBigUInt64LE(BigInt(sizeBytes), 40);
  program.writeBigUInt64LE(0x1000n, 48);
  return Buffer.concat([headers, code]);
}
