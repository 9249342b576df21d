/** Defines the interface of the two ways to run etcd: as a child process, and in a systemd unit of its own. */
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';

export interface EtcdRunner {
  /** Starts etcd. Resolves before it answers. Throws a StartError if it cannot be started. */
  start(): Promise<void>;
  /** The last line that etcd logged, for the errors of a start. */
  lastLine(): Promise<string>;
  /** Ends the supervision by this process, and a child process with it. */
  close(): Promise<void>;
}

export interface EtcdRunnerOptions {
  /** The program: a name in PATH, or a path. */
  readonly binary: string;
  readonly arguments: readonly string[];
  /** The directory of the data, by which a process that was left behind is recognized. */
  readonly dataDirectory: string;
  readonly pidFile: string;
  /** The file that the arguments name for the log. */
  readonly logFile: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called if this member was removed from its cluster, so that it cannot start again. */
  readonly onRemoved: (error: Error) => void;
}
