/** Runs a TCP proxy on loopback, which stands for the network between a client and a server. Tests cut and heal it. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { systemClock } from '../api/machinery/clock.ts';

/** A proxy between a client and one server. A test cuts its connections and heals them. */
export class HeldProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isCut = false;
  #isHeld = false;
  #delayMs = 0;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** Starts a proxy on a free port to the port of the URL on this host. */
  static async to(url: string): Promise<HeldProxy> {
    const target = new URL(url);
    const server = createServer();
    const proxy = new HeldProxy(server);
    server.on('connection', (socket) => proxy.#accept(socket, Number(target.port)));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  get url(): string {
    const { port } = this.#server.address() as { port: number };
    return `http://127.0.0.1:${port}`;
  }

  /** Breaks all connections and refuses new ones. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Keeps all connections open and accepts new ones, but passes nothing on. */
  hold(): void {
    this.#isHeld = true;
    for (const socket of this.#sockets) socket.pause();
  }

  /** Passes everything on later, in both directions together by `roundTripMs`. */
  slow(roundTripMs: number): void {
    this.#delayMs = roundTripMs / 2;
  }

  /** Ends every cut, hold and delay. */
  heal(): void {
    this.#isCut = false;
    this.#isHeld = false;
    this.#delayMs = 0;
    for (const socket of this.#sockets) socket.resume();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(socket: Socket, port: number): void {
    if (this.#isCut) {
      socket.destroy();
      return;
    }
    const target = connect(port, '127.0.0.1');
    for (const [from, to] of [
      [socket, target],
      [target, socket],
    ] as const) {
      this.#sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
      const line = new DelayLine(() => this.#delayMs);
      from.on('data', (part: Buffer) => line.pass(() => void to.write(part)));
      from.on('end', () => line.pass(() => void to.end()));
      if (this.#isHeld) from.pause();
    }
  }
}

/** Runs what is passed in order, each after the delay that holds when it is passed. */
class DelayLine {
  readonly #delayMs: () => number;
  readonly #waiting: { readonly atMs: number; readonly run: () => void }[] = [];

  constructor(delayMs: () => number) {
    this.#delayMs = delayMs;
  }

  pass(run: () => void): void {
    const delayMs = this.#delayMs();
    if (delayMs === 0 && this.#waiting.length === 0) return run();
    this.#waiting.push({ atMs: performance.now() + delayMs, run });
    if (this.#waiting.length === 1) this.#wait(delayMs);
  }

  #wait(ms: number): void {
    systemClock.after(ms, () => {
      for (let next = this.#waiting[0]; next !== undefined && next.atMs <= performance.now(); next = this.#waiting[0]) {
        next.run();
        this.#waiting.shift();
      }
      const [next] = this.#waiting;
      if (next !== undefined) this.#wait(Math.max(1, next.atMs - performance.now()));
    });
  }
}
