/** Reads on which ports processes of this host listen, apart from loopback. */
import { open, readFile } from 'node:fs/promises';

/** The states of sockets in the tables of the kernel that listen: `LISTEN` of TCP, and UDP without a peer. */
const LISTENS = { TCP: '0A', UDP: '07' } as const;
const TABLES = [
  ['TCP', '/proc/net/tcp'],
  ['TCP', '/proc/net/tcp6'],
  ['UDP', '/proc/net/udp'],
  ['UDP', '/proc/net/udp6'],
] as const;
/**
 * The maximum number of bytes that are read of a table. The kernel lists listeners of TCP before connections, of which there
 * may be millions.
 */
const MAX_BYTES = 512 * 1024;
const LOOPBACK = /^(?:[0-9A-F]{6}7F|0{24}01000000|0{16}FFFF0000[0-9A-F]{6}7F)$/;
/** The maximum number of ports that are reported. */
const MAX_PORTS = 256;

/**
 * Returns at most 256 ports such as `TCP 22`, sorted. Leaves out ports of the range from which clients connect
 * (`ip_local_port_range`) and above it, because the sockets of UDP clients look like those of servers.
 */
export async function listeningPorts(): Promise<readonly string[]> {
  const [firstOfClients = 32_768] = (await readFile('/proc/sys/net/ipv4/ip_local_port_range', 'utf8'))
    .split(/\s+/)
    .map(Number);
  const found = new Set<string>();
  for (const [protocol, table] of TABLES)
    for (const port of portsIn(await beginning(table), LISTENS[protocol]))
      if (port < firstOfClients) found.add(`${protocol} ${port}`);
  return [...found].sort().slice(0, MAX_PORTS);
}

/** Returns the ports of the sockets with this state in a table of the kernel, apart from loopback addresses. Pure. */
export function portsIn(table: string, state: string): readonly number[] {
  const sockets = table
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/));
  return sockets.flatMap(([, local = '', , socketState]) => {
    const [address = '', port = ''] = local.split(':');
    return socketState === state && !LOOPBACK.test(address) && port !== '' ? [Number.parseInt(port, 16)] : [];
  });
}

/**
 * Resolves to the first `MAX_BYTES` of a file, or to an empty text if it does not exist: a host without IPv6 has no tables
 * of it.
 */
async function beginning(path: string): Promise<string> {
  try {
    const file = await open(path);
    try {
      const parts: Buffer[] = [];
      for (let size = 0; size < MAX_BYTES;) {
        const { bytesRead, buffer } = await file.read(Buffer.alloc(64 * 1024), 0, 64 * 1024, null);
        if (bytesRead === 0) break;
        parts.push(buffer.subarray(0, bytesRead));
        size += bytesRead;
      }
      return Buffer.concat(parts).toString('latin1');
    } finally {
      await file.close();
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}
