; A classifier and its training: each run of `train` is a step of gradient descent on a batch.
; lispgpt checkpoint make digits.safetensors --for examples/digits.lisp
; lispgpt run examples/digits.lisp --checkpoint digits.safetensors --entry classify --input x=x.npy --output y.npz
(require nn gradients)

(config classes 10  width 64)
(weights (w [classes width]) (b [classes]))

(entry classify [(x [batch width] f32)]
  (softmax (linear x w b)))

(entry train [(x [batch width] f32) (labels [batch] i32) (rate [] f32)]
  (let [p (softmax (linear x w b))
        loss (sum (tensor [i batch] (/ (- (log (at p i (at labels i)))) batch)))
        [dw db] (gradients loss [w b])]
    (update! w (- w (* rate dw)))
    (update! b (- b (* rate db)))
    {:loss loss}))
