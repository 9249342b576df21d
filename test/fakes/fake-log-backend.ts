/**
 * A backend of the revision log in memory. It keeps its records like SQLite does on disk, fails on demand, and can be reloaded
 * like after a restart.
 */
import type { LogBackend, LogMarks, LogRecord } from '../../controlplane/storage/log-backend.ts';

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

  copyTo(): Promise<void> {
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
