/**
 * Implements SPDY/3.1 over any duplex stream: an upgraded socket, or a WebSocket that tunnels it. A slow stream stops the
 * connection once its buffer is full, so memory is bounded.
 */
import type { Duplex } from 'node:stream';
import { constants, createDeflate, createInflate, type Deflate, type Inflate } from 'node:zlib';
import { SerialQueue } from '../../../../api/machinery/serial-queue.ts';
import { DICTIONARY } from './dictionary.ts';
import {
  controlFrame,
  dataHeader,
  decodeHeaders,
  encodeHeaders,
  FIXED_BYTES,
  FLAG_FIN,
  FRAME,
  type Frame,
  FrameReader,
  STATUS,
  STREAM_ID_MASK,
} from './frames.ts';
import { SpdyStream } from './stream.ts';

const MAX_DATA_BYTES = 1 << 16;
const MAX_STREAMS = 1000;
/** The maximum size of what all streams of a connection hold for their readers. */
const MAX_HELD_BYTES = 1 << 22;
/** The maximum size of received chunks that are not yet read. */
const MAX_WAITING_BYTES = 1 << 20;
/** The maximum size of one inflated header block. */
const MAX_HEADER_BYTES = 1 << 12;
/** The maximum size of control frames that the transport has not sent yet. */
const MAX_UNSENT_CONTROL_BYTES = 1 << 18;

/** A SPDY connection with its streams. A protocol error or a dead transport closes all of them, and `closed` then resolves. */
export class SpdyConnection {
  readonly #transport: Duplex;
  readonly #reader = new FrameReader();
  readonly #inflate: Inflate = createInflate({ dictionary: DICTIONARY });
  readonly #deflate: Deflate = createDeflate({ dictionary: DICTIONARY });
  readonly #streams = new Map<number, SpdyStream>();
  readonly #onStream: ((stream: SpdyStream) => void) | undefined;
  readonly #onHeld: ((bytes: number) => void) | undefined;
  readonly closed: Promise<void>;
  readonly #headers = new SerialQueue();
  #ended = false;
  #unsentControlBytes = 0;
  #heldBytes = 0;
  /** The size of received chunks that are not yet read. */
  #waitingBytes = 0;
  #hasRoom: (() => void) | undefined;
  #draining: Promise<void> | undefined;
  #nextId = 1;
  /** Streams that this side opened and the peer has not accepted yet. */
  readonly #opening = new Map<number, { readonly resolve: () => void; readonly reject: (error: Error) => void }>();

  /**
   * Creates a connection. It is a server with `onStream`, and a client without it. `onHeld` is called with the number of
   * received bytes that have not been read, when it changes.
   */
  constructor(
    transport: Duplex,
    head: Buffer,
    onStream?: (stream: SpdyStream) => void,
    onHeld?: (bytes: number) => void,
  ) {
    this.#transport = transport;
    this.#onStream = onStream;
    this.#onHeld = onHeld;
    // An error of either codec closes the connection.
    this.#inflate.on('error', () => this.close());
    this.#deflate.on('error', () => this.close());
    // A server notices a disconnected client even if its streams are full. A client first reads what the server sent last.
    if (onStream !== undefined) transport.once('close', () => this.close());
    this.closed = this.#run(head);
  }

  get streamCount(): number {
    return this.#streams.size;
  }

  async #run(head: Buffer): Promise<void> {
    try {
      if (head.length > 0) await this.#take(head);
      await this.#takeAll();
    } catch {
      // The peer is gone or violates the protocol. In both cases the streams end below.
    } finally {
      // A server resets its streams when it has finished. The reader still gets what was received before.
      if (this.#onStream === undefined) for (const stream of this.#streams.values()) stream.peerEnded();
      if (this.#onStream === undefined) this.#streams.clear();
      this.close();
    }
  }

  /**
   * Takes chunks as they come, in order, until the transport ends. They are taken out of it at once: what a transport still
   * holds when its peer resets the connection is lost.
   */
  #takeAll(): Promise<void> {
    const transport = this.#transport;
    let work: Promise<void> = Promise.resolve();
    return new Promise((resolve, reject) => {
      const done = (): void => {
        work.then(resolve, reject);
      };
      transport.on('data', (chunk: Buffer) => {
        if (this.#ended) return;
        this.#addWaiting(chunk.length);
        if (this.#waitingBytes > MAX_WAITING_BYTES) transport.pause();
        work = work.then(async () => {
          await this.#take(chunk);
          this.#addWaiting(-chunk.length);
          if (transport.isPaused() && this.#waitingBytes <= MAX_WAITING_BYTES / 2) transport.resume();
        });
        work.catch(reject);
      });
      transport.once('end', done);
      transport.once('close', done);
      transport.once('error', done);
    });
  }

  #addWaiting(bytes: number): void {
    this.#waitingBytes += bytes;
    this.#onHeld?.(this.#heldBytes + this.#waitingBytes);
  }

  async #take(chunk: Buffer): Promise<void> {
    for (const frame of this.#reader.push(chunk)) await this.#handle(frame);
  }

  async #handle(frame: Frame): Promise<void> {
    if (frame.type === 'data') {
      const stream = this.#streams.get(frame.streamId);
      if (stream === undefined) return;
      if (frame.payload.length > 0) await stream.give(frame.payload);
      await this.#roomForMore();
      if (frame.fin) stream.peerEnded();
      return;
    }
    switch (frame.kind) {
      case FRAME.synStream:
        return this.#open(frame.payload, (frame.flags & FLAG_FIN) !== 0);
      case FRAME.synReply:
        return this.#answered(frame.payload, (frame.flags & FLAG_FIN) !== 0);
      case FRAME.rstStream: {
        const id = frame.payload.readUInt32BE(0) & STREAM_ID_MASK;
        this.#opening.get(id)?.reject(new Error('the stream was refused'));
        if (this.#onStream === undefined) this.#streams.get(id)?.peerEnded();
        else {
          // The stream leaves the table before it is destroyed, so that its reset is not answered with another one.
          const stream = this.#streams.get(id);
          this.#streams.delete(id);
          stream?.destroy();
        }
        return;
      }
      case FRAME.ping:
        this.#sendControl(controlFrame(FRAME.ping, 0, frame.payload));
        return;
      case FRAME.headers:
        // Decompressing keeps the state of the compression correct.
        await this.#decompress(frame.payload.subarray(FIXED_BYTES.headers));
        return;
      case FRAME.goAway:
        if (this.#onStream !== undefined) this.close();
        return;
      default:
        return;
    }
  }

  /** Called by streams when the number of bytes that they hold changes. */
  held(bytes: number): void {
    this.#heldBytes += bytes;
    this.#onHeld?.(this.#heldBytes + this.#waitingBytes);
    if (this.#heldBytes <= MAX_HELD_BYTES) this.#hasRoom?.();
  }

  /** Resolves when more may be read. The bytes that wait in streams are limited for all streams of the connection together. */
  async #roomForMore(): Promise<void> {
    if (this.#heldBytes <= MAX_HELD_BYTES) return;
    await new Promise<void>((resolve) => {
      this.#hasRoom = resolve;
    });
    this.#hasRoom = undefined;
  }

  async #open(payload: Buffer, fin: boolean): Promise<void> {
    const id = payload.readUInt32BE(0) & STREAM_ID_MASK;
    const headers = decodeHeaders(await this.#decompress(payload.subarray(FIXED_BYTES.synStream)));
    if (this.#onStream === undefined || this.#streams.has(id) || this.#streams.size >= MAX_STREAMS) {
      this.#reset(id, STATUS.refusedStream);
      return;
    }
    const stream = new SpdyStream(this, id, headers);
    // Readers of the stream get its failure. Without readers it needs no handling.
    stream.on('error', () => undefined);
    this.#streams.set(id, stream);
    await this.#reply(id);
    if (fin) stream.peerEnded();
    this.#onStream(stream);
  }

  /** Opens a stream as a client. Resolves when the peer has accepted it. Rejects if it is refused or the connection closes. */
  async open(headers: Readonly<Record<string, string>>): Promise<SpdyStream> {
    if (this.#ended) throw new Error('the connection is closed');
    const id = this.#nextId;
    this.#nextId += 2;
    const stream = new SpdyStream(this, id, headers);
    // Readers of the stream get its failure. Without readers it needs no handling.
    stream.on('error', () => undefined);
    this.#streams.set(id, stream);
    try {
      await new Promise<void>((resolve, reject) => {
        this.#opening.set(id, { resolve, reject });
        const fixed = Buffer.alloc(FIXED_BYTES.synStream);
        fixed.writeUInt32BE(id);
        this.#sendHeaders(FRAME.synStream, fixed, headers).catch(reject);
      });
    } catch (error) {
      stream.destroy();
      throw error;
    } finally {
      this.#opening.delete(id);
    }
    return stream;
  }

  async #answered(payload: Buffer, fin: boolean): Promise<void> {
    const id = payload.readUInt32BE(0) & STREAM_ID_MASK;
    await this.#decompress(payload.subarray(FIXED_BYTES.synReply));
    this.#opening.get(id)?.resolve();
    if (fin) this.#streams.get(id)?.peerEnded();
  }

  #decompress(block: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const parts: Buffer[] = [];
      let size = 0;
      const onData = (part: Buffer): void => {
        size += part.length;
        if (size > MAX_HEADER_BYTES) this.#inflate.destroy(new Error('a SPDY header block is too large'));
        else parts.push(part);
      };
      // A codec that is closed meanwhile never calls back for its input.
      const onClose = (): void => reject(new Error('the connection is closed'));
      this.#inflate.once('error', reject).once('close', onClose);
      this.#inflate.on('data', onData);
      this.#inflate.write(block, (error) => {
        this.#inflate.off('data', onData).off('error', reject).off('close', onClose);
        if (error) reject(error);
        else resolve(Buffer.concat(parts));
      });
    });
  }

  #reply(id: number): Promise<void> {
    const fixed = Buffer.alloc(FIXED_BYTES.synReply);
    fixed.writeUInt32BE(id);
    return this.#sendHeaders(FRAME.synReply, fixed, {});
  }

  /** Sends headers after the ones before them, because all header blocks share one state of compression. */
  #sendHeaders(kind: number, fixed: Buffer, headers: Readonly<Record<string, string>>): Promise<void> {
    return this.#headers.run(async () => {
      const block = await this.#compress(encodeHeaders(headers));
      this.#sendControl(controlFrame(kind, 0, Buffer.concat([fixed, block])));
    });
  }

  #compress(block: Buffer): Promise<Buffer> {
    return new Promise((resolve) => {
      const parts: Buffer[] = [];
      const onData = (part: Buffer): void => {
        parts.push(part);
      };
      this.#deflate.on('data', onData);
      this.#deflate.write(block);
      this.#deflate.flush(constants.Z_SYNC_FLUSH, () => {
        this.#deflate.off('data', onData);
        resolve(Buffer.concat(parts));
      });
    });
  }

  /** Sends data of a stream. Resolves when the transport accepts more. Rejects if the connection is closed. */
  async sendData(id: number, chunk: Buffer, fin: boolean): Promise<void> {
    if (this.#ended) throw new Error('the connection is closed');
    let at = 0;
    do {
      const part = chunk.subarray(at, at + MAX_DATA_BYTES);
      at += part.length;
      const isLast = at >= chunk.length;
      this.#transport.cork();
      this.#transport.write(dataHeader(id, fin && isLast, part.length));
      const flowing = this.#transport.write(part);
      this.#transport.uncork();
      if (!flowing) await this.#drain();
    } while (at < chunk.length);
  }

  #drain(): Promise<void> {
    this.#draining ??= this.#nextDrain().finally(() => {
      this.#draining = undefined;
    });
    return this.#draining;
  }

  #nextDrain(): Promise<void> {
    if (this.#transport.destroyed) return Promise.reject(new Error('the connection is closed'));
    return new Promise((resolve, reject) => {
      const onDrain = (): void => {
        this.#transport.off('close', onClose);
        resolve();
      };
      const onClose = (): void => {
        this.#transport.off('drain', onDrain);
        reject(new Error('the connection is closed'));
      };
      this.#transport.once('drain', onDrain);
      this.#transport.once('close', onClose);
    });
  }

  #reset(id: number, status: number): void {
    const payload = Buffer.alloc(8);
    payload.writeUInt32BE(id, 0);
    payload.writeUInt32BE(status, 4);
    this.#sendControl(controlFrame(FRAME.rstStream, 0, payload));
  }

  /**
   * Sends a control frame, unless the connection has ended. A peer that requests responses without end and reads none loses the
   * connection.
   */
  #sendControl(frame: Buffer): void {
    if (this.#ended || !this.#transport.writable) return;
    this.#unsentControlBytes += frame.length;
    if (this.#unsentControlBytes > MAX_UNSENT_CONTROL_BYTES) {
      this.abandon();
      return;
    }
    this.#transport.write(frame, () => {
      this.#unsentControlBytes -= frame.length;
    });
  }

  /**
   * Forgets a stream that ended. A server that has ended a stream may have closed the connection as well. A client that resets
   * the stream then breaks its own socket, and loses what it has not read of the other streams.
   */
  forget(id: number, end: { readonly isUnfinished: boolean; readonly hasPeerEnded: boolean }): void {
    if (!this.#streams.delete(id)) return;
    const isLate = this.#onStream === undefined && end.hasPeerEnded;
    if (end.isUnfinished && !isLate) this.#reset(id, STATUS.cancel);
  }

  /** Ends all streams and the transport. */
  close(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const opening of this.#opening.values()) opening.reject(new Error('the connection is closed'));
    for (const stream of this.#streams.values()) stream.destroy();
    this.#streams.clear();
    this.#transport.end();
    // Further data is read and dropped, because a peer that cannot write might not read the last frame.
    this.#transport.resume();
    this.#inflate.close();
    this.#deflate.close();
  }

  /** Ends the connection and drops the data that the peer has not received yet. */
  abandon(): void {
    this.close();
    this.#transport.destroy();
  }
}
