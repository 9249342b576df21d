/**
 * Runs in a network namespace, and serves and uses services. It answers TCP and UDP on port 8080 of both families, and UDP on
 * port 5300, with its name and the address of the client. Reads one JSON request for each line of its standard input, and
 * writes one JSON response for each: the answer, `refused`, or `none` if nothing came in time.
 */
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';

export interface ServiceRequest {
  readonly id: number;
  readonly address: string;
  readonly port: number;
  readonly protocol: 'TCP' | 'UDP';
  readonly timeoutMs: number;
  /** The port of the client, of datagrams. */
  readonly from?: number;
}

const name = process.argv[2] ?? '';
const plain = (address = ''): string => address.replace('::ffff:', '');
const resultOf = (error: Error): string =>
  (error as NodeJS.ErrnoException).code === 'ECONNREFUSED' ? 'refused' : 'none';

function overTcp({ address, port, timeoutMs }: ServiceRequest): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    const end = (result: string): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => end('none'), timeoutMs);
    socket.once('error', (error) => end(resultOf(error)));
    socket.once('data', (data) => end(data.toString()));
  });
}

function overUdp({ address, port, timeoutMs, from = 0 }: ServiceRequest): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
    const end = (result: string): void => {
      clearTimeout(timer);
      socket.close();
      resolve(result);
    };
    const timer = setTimeout(() => end('none'), timeoutMs);
    socket.once('error', (error) => end(resultOf(error)));
    socket.once('message', (data) => end(data.toString()));
    socket.bind(from);
    // A connected socket learns that its datagram was rejected.
    socket.connect(port, address, () => socket.send('ping'));
  });
}

createServer((socket) => {
  socket.on('error', () => undefined);
  socket.end(`${name} ${plain(socket.remoteAddress)}`);
}).listen(8080, '::');
for (const port of [8080, 5300]) {
  const server = createSocket('udp6');
  server.on('message', (_, { address, port: from }) => server.send(`${name} ${plain(address)}`, from, address));
  server.bind(port, '::');
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const request = JSON.parse(line) as ServiceRequest;
    void (request.protocol === 'TCP' ? overTcp(request) : overUdp(request)).then((result) =>
      process.stdout.write(`${JSON.stringify({ id: request.id, result })}\n`),
    );
  })
  .on('close', () => process.exit(0));
