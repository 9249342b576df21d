/** A TCP proxy on loopback that tests cut and heal, as a network between a client and a server. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

export class HeldProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isCut = false;

  private constructor(server: Server) {
    this.#server = server;
  }

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

  /** Keeps all connections open, but passes nothing on. */
  hold(): void {
    for (const socket of this.#sockets) socket.pause();
  }

  heal(): void {
    this.#isCut = false;
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
      from.pipe(to);
    }
  }
}
