/**
 * Gives access to the host's login manager, which delays a shutdown of the host while a lock is held. Uses systemd's own
 * tools:
 *
 * The lock is a file descriptor that D-Bus passes, which JavaScript clients cannot receive. `systemd-inhibit` holds it as
 * long as its command runs, and the command exits when its standard input closes, so that a killed agent never delays a
 * shutdown.
 *
 * `busctl` receives the signal of a shutdown.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** A lock that delays the shutdown of the host. */
export interface InhibitorLock {
  /** Resolves when the lock is released. */
  release(): Promise<void>;
}

/** The operations of the login manager. All reject if it does not answer. */
export interface Logind {
  /** Resolves to the maximum time for which a lock delays a shutdown. */
  inhibitDelayMs(): Promise<number>;
  /** Configures this maximum delay. */
  raiseInhibitDelay(ms: number): Promise<void>;
  /** Resolves when the lock is held. */
  inhibit(): Promise<InhibitorLock>;
  /**
   * Calls back with true when the host is about to shut down, and with false if the shutdown is cancelled. Resolves when the
   * monitor receives signals. `ended` rejects when the monitor fails, and when the signal aborts.
   */
  listen(onShutdown: (goingDown: boolean) => void, signal: AbortSignal): Promise<{ readonly ended: Promise<never> }>;
}

const SERVICE = 'org.freedesktop.login1';
const PATH = '/org/freedesktop/login1';
const MANAGER = 'org.freedesktop.login1.Manager';
const INHIBITOR = [
  '--what=shutdown',
  '--mode=delay',
  '--who=kubelet',
  '--why=Kubelet needs time to handle node shutdown',
];
const LINUX_CONFIGURATION = '/etc/systemd/logind.conf.d';
/** The name that the kubelet uses, so that two agents that follow each other on a host leave one file. */
const FILE_NAME = '99-kubelet.conf';
/** The file by which the agent configures the maximum delay of the login manager. */
export const LOGIND_FILE = join(LINUX_CONFIGURATION, FILE_NAME);
/** The first line of the configuration file of the agent. `orchlet reset` removes only a file that begins with it. */
export const LOGIND_FIRST_LINE = '# The node agent waits so long for pods';

const BUSCTL_TIMEOUT_MS = 10_000;
/** The length of the output of a tool that an error quotes. */
const QUOTED_CHARACTERS = 500;

interface LogindOptions {
  /** The directory of drop-ins of the login manager's configuration. */
  readonly configurationDirectory?: string;
  /** The environment of the tools. */
  readonly environment?: NodeJS.ProcessEnv;
}

/** Returns the login manager of this host, over the system bus. */
export function systemLogind(options: LogindOptions = {}): Logind {
  const { configurationDirectory = LINUX_CONFIGURATION, environment: env = process.env } = options;

  function busctl(args: readonly string[]): Promise<string> {
    return new Promise((resolve, reject) => {
      execFile('busctl', ['--system', ...args], { env, timeout: BUSCTL_TIMEOUT_MS }, (error, stdout, stderr) => {
        if (error === null) resolve(stdout.trim());
        else reject(new Error(`the login manager does not answer: ${stderr.trim() || error.message}`));
      });
    });
  }

  return {
    async inhibitDelayMs() {
      const answer = await busctl(['get-property', SERVICE, PATH, MANAGER, 'InhibitDelayMaxUSec']);
      return Number(answer.replace(/^t /, '')) / 1000;
    },

    async raiseInhibitDelay(ms) {
      await mkdir(configurationDirectory, { recursive: true, mode: 0o755 });
      const text = `${LOGIND_FIRST_LINE}\n[Login]\nInhibitDelayMaxSec=${Math.ceil(ms / 1000)}\n`;
      await writeFile(join(configurationDirectory, FILE_NAME), text, { mode: 0o644 });
      const unit = ['org.freedesktop.systemd1', '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager'];
      await busctl(['call', ...unit, 'KillUnit', 'ssi', 'systemd-logind.service', 'all', '1']);
    },

    async inhibit() {
      // The command writes a line once it has the lock. It reads its input until this process closes the pipe.
      const child = spawn('systemd-inhibit', [...INHIBITOR, 'sh', '-c', 'echo held; exec cat >/dev/null'], {
        env,
        stdio: ['pipe', 'pipe', 'pipe'],
      });
      const ended = endOf(child);
      await Promise.race([
        new Promise<void>((resolve) => child.stdout.once('data', () => resolve())),
        ended.then((why) => Promise.reject(new Error(`systemd-inhibit did not get the inhibitor lock: ${why}`))),
      ]);
      return {
        async release() {
          child.stdin.end();
          await ended;
        },
      };
    },

    async listen(onShutdown, signal) {
      const match = `type='signal',sender='${SERVICE}',path='${PATH}',interface='${MANAGER}',member='PrepareForShutdown'`;
      const child = spawn('busctl', ['--system', 'monitor', '--json=short', `--match=${match}`], {
        env,
        signal,
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      createInterface({ input: child.stdout }).on('line', (line) => {
        const goingDown = shutdownOf(line);
        if (goingDown !== undefined) onShutdown(goingDown);
      });
      const ended = endOf(child).then((why) =>
        Promise.reject(new Error(`the connection to the login manager ended: ${why}`)),
      );
      // The caller gets the failure with the result.
      ended.catch(() => undefined);
      // The process writes to its standard error once it receives signals.
      await Promise.race([new Promise<void>((resolve) => child.stderr.once('data', () => resolve())), ended]);
      return { ended };
    },
  };
}

/** Returns the payload of a signal as `busctl` writes it; `undefined` for any other line. */
function shutdownOf(line: string): boolean | undefined {
  let message: { readonly member?: string; readonly payload?: { readonly data?: readonly unknown[] } };
  try {
    message = JSON.parse(line) as typeof message;
  } catch {
    // The first line of the monitor is a greeting and not JSON.
    return undefined;
  }
  const [value] = message.payload?.data ?? [];
  return message.member === 'PrepareForShutdown' && typeof value === 'boolean' ? value : undefined;
}

function endOf(child: ChildProcess): Promise<string> {
  let output = '';
  child.stderr?.on('data', (chunk: Buffer) => (output = (output + chunk.toString()).slice(-QUOTED_CHARACTERS)));
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(output.trim() || `it ended with ${signal ?? code ?? 'nothing'}`));
  });
}
