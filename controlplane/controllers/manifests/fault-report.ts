/** Reports the faults of manifests as log lines and events, each once for as long as it lasts. */
import type { Logger } from '../../../api/component/logger.ts';
import type { EventRecorder, ObjectReference } from '../../../api/client/event-report.ts';

/** What is wrong with a manifest, for its author. */
export interface Fault {
  readonly path: string;
  /** The line of the fault; 0 if the fault is one of the whole file. */
  readonly line: number;
  readonly message: string;
}

/** The number of characters to which messages are cut, because they may quote a large value of the manifest. */
const MAX_MESSAGE = 1_000;

/** Keeps the faults that it has reported. */
export class FaultReport {
  readonly #logger: Logger;
  readonly #recorder: EventRecorder;
  #reported: ReadonlySet<string> = new Set();

  constructor(logger: Logger, recorder: EventRecorder) {
    this.#logger = logger;
    this.#recorder = recorder;
  }

  /** Takes all present faults. `regarding` returns the object that events about a file name. */
  report(faults: readonly Fault[], regarding: (path: string) => ObjectReference): void {
    const reported = new Set<string>();
    for (const { path, line, message } of faults) {
      const key = `${path}\0${line}\0${message}`;
      reported.add(key);
      if (this.#reported.has(key)) continue;
      const shown = message.slice(0, MAX_MESSAGE);
      this.#logger.warn({ file: path, ...(line === 0 ? {} : { line }) }, `Manifest cannot be applied: ${shown}`);
      const place = line === 0 ? path : `${path}, line ${line}`;
      this.#recorder.event(regarding(path), 'Warning', 'FailedManifest', `${place}: ${shown}`.slice(0, MAX_MESSAGE));
    }
    this.#reported = reported;
  }
}
