/**
 * Implements a backend of the revision log in memory. It keeps its records like SQLite does on disk, fails on demand, and can
 * be reloaded like after a restart.
 */
import type { LogPage, RecordMark } from '../../controlplane/storage/stored-log.ts';
import type { LogBackend, LogMarks, LogRecord } from '../../controlplane/storage/log-backend.ts';

/** A backend whose operations a test observes and lets fail. */
export class FakeLogBackend implements LogBackend {
  readonly records = new Map<number, LogRecord>();
  marks: LogMarks = { compactedRevision: 0, lastRevision: 0, lastCompaction: undefined };
  /** Called before each operation. An error of it is thrown synchronously, and the operation has no effect. */
  onCall: (operation: 'append' | 'remove' | 'probe', revisions: readonly number[]) => void = () => undefined;

  lose: (error: Error) => void = () => undefined;
  trouble: (problem: string | undefined) => void = () => undefined;

  append(records: readonly LogRecord[]): Promise<void> {
    this.onCall(
      'append',
      records.map(({ revision }) => revision),
    );
    for (const record of records) {
      this.records.set(record.revision, record);
      this.marks = { ...this.marks, lastRevision: record.revision };
    }
    return Promise.resolve();
  }

  remove(marks: LogMarks, revisions: readonly number[]): Promise<void> {
    this.onCall('remove', revisions);
    this.marks = marks;
    for (const revision of revisions) this.records.delete(revision);
    return Promise.resolve();
  }

  probe(lastRevision: number): Promise<void> {
    this.onCall('probe', []);
    this.marks = { ...this.marks, lastRevision };
    return Promise.resolve();
  }

  ping(): Promise<void> {
    return Promise.resolve();
  }

  onLost(listener: (error: Error) => void): void {
    this.lose = listener;
  }

  onTrouble(listener: (problem: string | undefined) => void): void {
    this.trouble = listener;
  }

  read(after: number): Promise<LogPage> {
    const records = [...this.records.values()].filter(({ revision }) => revision > after);
    const values = Buffer.concat(records.map(({ value }) => value ?? Buffer.alloc(0)));
    return Promise.resolve({
      records: {
        revisions: records.map(({ revision }) => revision),
        keys: records.map(({ key }) => key),
        createRevisions: records.map(({ createRevision }) => createRevision),
        expiries: records.map(({ expiresAtMs }) => expiresAtMs ?? 0),
        lengths: records.map(({ value }) => value?.length ?? -1),
        values: new Uint8Array(values).buffer,
      },
      compactedRevision: this.marks.compactedRevision,
    });
  }

  has({ revision }: RecordMark): Promise<boolean> {
    return Promise.resolve(this.records.has(revision));
  }

  copyTo(): Promise<void> {
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
