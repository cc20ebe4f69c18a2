; A classifier of images: rows of pixels as numbers, through two hidden layers, to the probabilities of classes.
; lispgpt run examples/classifier.lisp --checkpoint W.safetensors --entry classify --input x=x.npy --output y.npz
(require nn)

(config pixels 784  hidden 256  classes 10)

(weights
  (in-w [hidden pixels] bf16) (in-b [hidden])
  (middle-w [hidden hidden] bf16) (middle-b [hidden])
  (out-w [classes hidden]) (out-b [classes]))

(entry classify [(x [batch pixels] f32)] {:shapes [{batch 1} {batch 64}]}
  (let [h (relu (linear x in-w in-b))
        h (relu (linear h middle-w middle-b))
        scores (linear h out-w out-b)]
    {:scores scores
     :probabilities (softmax scores)
     :best (argmax scores)}))
