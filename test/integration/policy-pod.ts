/**
 * Runs in the network namespace of a pod: serves TCP and UDP on ports 80 and 81 of both families, and probes others. Reads one
 * JSON request for each line of its standard input and writes one JSON response for each.
 *
 * `hold` opens a TCP connection that stays, and `use` sends over it and reports whether an echo came. Port 82 answers with the
 * address of the client, which `source` returns; empty if nothing came. `names` returns the addresses that the name server at
 * `address` gives a name, sorted.
 */
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { connect, createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

export interface PodRequest {
  readonly id: number;
  readonly what: 'probe' | 'hold' | 'use' | 'source' | 'names';
  readonly address: string;
  readonly port: number;
  readonly protocol: 'TCP' | 'UDP';
  readonly timeoutMs: number;
  readonly name?: string;
}

const held = new Map<string, Socket>();

function overTcp({ address, port, timeoutMs }: PodRequest): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    const end = (result: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => end(false), timeoutMs);
    socket.once('error', () => end(false));
    socket.once('data', () => end(true));
    socket.write('ping');
  });
}

function overUdp({ address, port, timeoutMs }: PodRequest): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
    const send = (): void => socket.send('ping', port, address);
    socket.bind(0, () => socket.setBroadcast(true));
    const end = (result: boolean): void => {
      clearInterval(again);
      clearTimeout(timer);
      socket.close();
      resolve(result);
    };
    const timer = setTimeout(() => end(false), timeoutMs);
    const again = setInterval(send, 200);
    socket.on('error', () => undefined);
    socket.once('message', () => end(true));
    send();
  });
}

function hold(request: PodRequest): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: request.address, port: request.port });
    held.set(request.address, socket);
    socket.on('error', () => undefined);
    socket.once('data', () => resolve(true));
    socket.write('ping');
  });
}

function use({ address, timeoutMs }: PodRequest): Promise<boolean> {
  const socket = held.get(address);
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), timeoutMs);
    socket?.once('data', () => {
      clearTimeout(timer);
      resolve(true);
    });
    socket?.write('ping');
  });
}

function source({ address, port, timeoutMs }: PodRequest): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    const end = (result: string): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => end(''), timeoutMs);
    socket.once('error', () => end(''));
    socket.once('data', (data) => end(data.toString()));
  });
}

async function names({ address, name = '', timeoutMs }: PodRequest): Promise<string> {
  const resolver = new Resolver({ timeout: timeoutMs, tries: 1 });
  resolver.setServers([address.includes(':') ? `[${address}]` : address]);
  const found = await Promise.all([
    resolver.resolve4(name).catch((): string[] => []),
    resolver.resolve6(name).catch((): string[] => []),
  ]);
  return found.flat().toSorted().join(' ');
}

createServer((socket) =>
  socket.on('error', () => undefined).end((socket.remoteAddress ?? '').replace(/^::ffff:/, '')),
).listen(82, '::');
for (const port of [80, 81]) {
  createServer((socket) => socket.on('error', () => undefined).pipe(socket)).listen(port, '::');
  const datagrams = createSocket({ type: 'udp6' });
  datagrams.on('message', (message, { port: back, address }) => datagrams.send(message, back, address));
  datagrams.bind(port, '::');
}
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const request = JSON.parse(line) as PodRequest;
  const run = { probe: request.protocol === 'TCP' ? overTcp : overUdp, hold, use, source, names }[request.what];
  void run(request).then((result) => process.stdout.write(`${JSON.stringify({ id: request.id, result })}\n`));
});
lines.on('close', () => process.exit(0));
