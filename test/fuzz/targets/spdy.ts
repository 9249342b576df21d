/** Attacks the SPDY/3.1 connection between a client and the agent. It must either fail or serve, with bounded memory. */
import { Duplex } from 'node:stream';
import { constants, createDeflate } from 'node:zlib';
import { SpdyConnection } from '../../../agent/base/protocols/spdy/connection.ts';
import { DICTIONARY } from '../../../agent/base/protocols/spdy/dictionary.ts';
import { controlFrame, dataHeader, encodeHeaders, FRAME } from '../../../agent/base/protocols/spdy/frames.ts';
import { law, type Target } from '../target.ts';

function compressed(block: Buffer): Promise<Buffer> {
  return new Promise((resolve) => {
    const deflate = createDeflate({ dictionary: DICTIONARY });
    const parts: Buffer[] = [];
    deflate.on('data', (part: Buffer) => parts.push(part));
    deflate.write(block);
    deflate.flush(constants.Z_SYNC_FLUSH, () => {
      resolve(Buffer.concat(parts));
      deflate.close();
    });
  });
}

function open(id: number, block: Buffer, flags = 0): Buffer {
  const fixed = Buffer.alloc(10);
  fixed.writeUInt32BE(id);
  return controlFrame(FRAME.synStream, flags, Buffer.concat([fixed, block]));
}

const block = await compressed(encodeHeaders({ streamtype: 'stdin', port: '80' }));
const bomb = await compressed(
  Buffer.concat([Buffer.from([0, 0, 0, 1, 0, 0, 0, 1, 97, 127, 0, 0, 0]), Buffer.alloc(30_000_000)]),
);
const data = (id: number, fin: boolean, text: string): Buffer =>
  Buffer.concat([dataHeader(id, fin, text.length), Buffer.from(text)]);
const ping = controlFrame(FRAME.ping, 0, Buffer.from([0, 0, 0, 1]));
const reset = controlFrame(FRAME.rstStream, 0, Buffer.from([0, 0, 0, 1, 0, 0, 0, 5]));

/** A transport that returns its input and drops its output. */
class Wire extends Duplex {
  written = 0;

  override _read(): void {
    // All data is pushed at once.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.written += chunk.length;
    done();
  }
}

export const spdy: Target = {
  seeds: [
    Buffer.concat([open(1, block), data(1, false, 'hello'), ping, data(1, true, ''), data(1, true, 'late')]),
    Buffer.concat([open(1, block, 1), open(1, block), reset, data(1, false, 'x')]),
    Buffer.concat([
      controlFrame(FRAME.settings, 0, Buffer.alloc(12)),
      controlFrame(FRAME.windowUpdate, 0, Buffer.alloc(8)),
      controlFrame(FRAME.headers, 0, Buffer.concat([Buffer.alloc(4), block])),
      controlFrame(FRAME.goAway, 0, Buffer.alloc(8)),
    ]),
    controlFrame(FRAME.rstStream, 0, Buffer.alloc(1)),
    controlFrame(FRAME.synStream, 0, Buffer.alloc(0)),
    open(1, bomb),
  ],
  words: [
    open(3, block).toString('latin1'),
    reset.toString('latin1'),
    ping.toString('latin1'),
    data(1, true, 'x').toString('latin1'),
    '\x80\x03\x00\x01',
    '\x00\x00\x00\x01',
  ],
  async execute(input) {
    const wire = new Wire();
    let streams = 0;
    let bytes = 0;
    let headerBytes = 0;
    const connection = new SpdyConnection(wire, input.subarray(0, input.length >> 2), (stream) => {
      streams += 1;
      for (const value of Object.values(stream.headers)) headerBytes += value.length;
      stream.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
      });
      stream.on('end', () => stream.end('bye'));
    });
    wire.push(input.subarray(input.length >> 2));
    wire.push(null);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>((resolve) => {
      timer = setTimeout(() => resolve('late'), 20_000);
    });
    const end = await Promise.race([connection.closed, late]);
    clearTimeout(timer);
    law(end !== 'late', 'the connection does not end');
    law(bytes <= input.length, 'more came out than went in');
    law(headerBytes < 1 << 20, `${headerBytes} bytes of headers were unpacked`);
    return `${Math.min(streams, 3)} ${bytes > 0} ${Math.min(wire.written, 100)} ${connection.streamCount}`;
  },
};
