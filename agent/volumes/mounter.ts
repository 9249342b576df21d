/** Mounts with the host's mount(8) and umount(8). */
import { spawn } from 'node:child_process';
import { hostMounts, type MountPoint } from '../host/mount-table.ts';

/** Mounts for the agent. Operations may hang on a filesystem that does not respond. */
export interface Mounter {
  /** Mounts a filesystem. `options` are those of `-o`. Throws with the output of mount(8). */
  mount(options: {
    readonly source: string;
    readonly target: string;
    readonly type?: string;
    readonly options?: readonly string[];
    /** The source is a link that must not be resolved by name (`/proc/<pid>/fd/<n>`). */
    readonly exactSource?: boolean;
  }): Promise<void>;
  /**
   * Unmounts everything that is mounted at the target, and detaches a busy mount. Does nothing if nothing is mounted. Throws
   * with the output of umount(8).
   */
  unmount(target: string): Promise<void>;
  /** Returns all mount points of this process's namespace. */
  list(): Promise<readonly MountPoint[]>;
}

/** The mounter of this host. */
export const hostMounter: Mounter = {
  async mount({ source, target, type, options, exactSource }) {
    const args = [
      ...(exactSource === true ? ['--no-canonicalize'] : []),
      ...(type === undefined ? [] : ['-t', type]),
      ...(options === undefined || options.length === 0 ? [] : ['-o', options.join(',')]),
      // A pod names the source of an NFS volume: it must not be read as an option, such as `--fstab`.
      '--',
      source,
      target,
    ];
    await run('mount', args);
  },
  async unmount(target) {
    const isMounted = async (): Promise<boolean> => (await hostMounter.list()).some((point) => point.path === target);
    while (await isMounted()) {
      try {
        await run('umount', ['--', target]);
      } catch (error) {
        if (!(await isMounted())) return;
        if (!(error instanceof Error) || !error.message.includes('busy')) throw error;
        await run('umount', ['-l', '--', target]);
      }
    }
  },
  list: hostMounts,
};

/** The error of a failure has the end of what mount(8) and its helpers print, up to this length. */
const MAX_ERROR_CHARACTERS = 16 * 1024;

function run(command: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, LC_ALL: 'C' },
    });
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => {
      stderr = (stderr + chunk.toString()).slice(-MAX_ERROR_CHARACTERS);
    });
    child.on('error', (error) => reject(new Error(`${command} cannot be run: ${error.message}`, { cause: error })));
    child.on('close', (code) => {
      if (code === 0) resolve();
      else {
        const doing = command === 'mount' ? 'Mounting' : 'Unmounting';
        // The kubelet passes and shows no `--`.
        const commandLine = args.filter((argument) => argument !== '--').join(' ');
        const attempt = `${doing} command: ${command}\n${doing} arguments: ${commandLine}`;
        reject(new Error(`${command} failed: exit status ${code}\n${attempt}\nOutput: ${stderr}`));
      }
    });
  });
}
