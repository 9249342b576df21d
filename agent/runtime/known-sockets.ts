/** Knows the sockets on which container runtimes are searched, and finds out whether one answers there. */
import { connect } from 'node:net';
import { request } from '../../api/http/node-http.ts';

/** The sockets of containerd and CRI-O. */
export const KNOWN_CRI_SOCKETS: readonly string[] = ['/run/containerd/containerd.sock', '/run/crio/crio.sock'];
/** The socket of the Docker Engine. */
export const DOCKER_SOCKET = '/var/run/docker.sock';
/** The sockets of the Docker Engine and of Podman's Docker API. */
export const KNOWN_DOCKER_SOCKETS: readonly string[] = [DOCKER_SOCKET, '/run/podman/podman.sock'];

const CONNECT_MS = 1000;
const PING_MS = 2000;

/** Whether a process accepts connections on the socket. Never rejects. */
export function socketAnswers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    socket.setTimeout(CONNECT_MS, () => socket.destroy());
    socket.once('connect', () => {
      resolve(true);
      socket.destroy();
    });
    socket.once('error', () => resolve(false));
    socket.once('close', () => resolve(false));
  });
}

/** Whether the socket speaks the API of the Docker Engine. Never rejects. */
export function dockerAnswers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const ping = request({ socketPath: path, path: '/_ping', timeout: PING_MS }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    ping.on('timeout', () => ping.destroy());
    ping.on('error', () => resolve(false));
    ping.end();
  });
}
