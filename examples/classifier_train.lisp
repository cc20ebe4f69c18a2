; A classifier that learns: its gradients, and what it does with them, are one more entry.
; lispgpt run examples/classifier_train.lisp --checkpoint W.safetensors --entry train --input x=x.npy --input labels=l.npy
;   --input rate=r.npy --output y.npz
(require nn)
(require gradients)

(config pixels 64  hidden 32  classes 10)

(weights
  (in-w [hidden pixels])   (in-b [hidden])
  (out-w [classes hidden]) (out-b [classes]))

(defn scores-of [x]
  (linear (gelu (linear x in-w in-b)) out-w out-b))

; The mean of -log softmax(scores) at the labels, as a tensor of one number.
(defn cross-entropy [scores labels]
  (let [[rows classes] (shape scores)
        peak (maximum scores)
        powers (tensor [r rows c classes] (exp (- (at scores r c) (at peak r))))
        total (sum powers)]
    (/ (sum (tensor [r rows] (- (+ (log (at total r)) (at peak r)) (at scores r (at labels r))))) rows)))

(defn descend [w gradient rate]
  (- w (* rate gradient)))

(entry classify [(x [batch pixels] f32)] (argmax (scores-of x)))

(entry train [(x [batch pixels] f32) (labels [batch] i32) (rate [] f32)]
  (let [loss (cross-entropy (scores-of x) labels)
        [a b c d] (gradients loss [in-w in-b out-w out-b])]
    (update! in-w (descend in-w a rate))
    (update! in-b (descend in-b b rate))
    (update! out-w (descend out-w c rate))
    (update! out-b (descend out-b d rate))
    {:loss loss}))
