import { PlainError } from '../../api/component/plain-error.ts';

/** The control plane cannot start with these flags or on this host. */
export class StartError extends PlainError {
  override readonly name = 'StartError';
}
