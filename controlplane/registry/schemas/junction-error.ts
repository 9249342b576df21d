/** Defines errors of the schema of a custom resource that name another field than that of the value they are about. */
import { FieldError } from '../../../api/meta/field-error.ts';

/** An error about the value at `at` as a whole, which names no field or another field. */
export class JunctionError extends FieldError {
  readonly at: string;

  constructor({ type, field, value, detail }: FieldError, at: string) {
    super(type, field, value, detail);
    this.at = at;
  }
}
